package triglot;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.Producer;

/**
 * What releases from 4.3 on have of two-phase commits (KIP-939) behind their public methods.
 *
 * <p>They know the states, and read and write InitProducerId 6, and ask by themselves for no version
 * that is not stable yet: version and flags are set in the request that waits to be sent.
 */
final class TwoPhase {
    private TwoPhase() {}

    /** As initTransactions; with keep a transaction that is open stays so. */
    static void init(Producer<?, ?> producer, boolean keep) throws Exception {
        Object manager = field(producer, "transactionManager");
        Object result;
        synchronized (manager) { // which the thread that sends takes, too
            result = call(manager, "initializeTransactions", 1, keep);
            for (Object handler : (Iterable<?>) field(manager, "pendingRequests")) {
                Object builder = field(handler, "builder");
                Object request = field(builder, "data");
                call(request, "setEnable2Pc", 1, true);
                call(request, "setKeepPreparedTxn", 1, keep);
                Field latest = builder.getClass().getSuperclass().getDeclaredField("latestAllowedVersion");
                latest.setAccessible(true);
                latest.setShort(builder, (short) 6);
            }
        }
        call(field(producer, "sender"), "wakeup", 0);
        call(result, "await", 3, Command.TIMEOUT_MS, TimeUnit.MILLISECONDS, "InitProducerId");
    }

    /** Keeps the transaction that is open, and returns its producer id and epoch. */
    static String recover(Producer<?, ?> producer) throws Exception {
        init(producer, true);
        Object manager = field(producer, "transactionManager");
        if ((boolean) call(manager, "isPrepared", 0)) {
            // Else it sends no EndTxn, for it has added no partition.
            Field started = manager.getClass().getDeclaredField("transactionStarted");
            started.setAccessible(true);
            started.setBoolean(manager, true);
        }
        return prepared(producer);
    }

    /** All that was sent is acknowledged, and nothing more may be; what is to be stored elsewhere. */
    static String prepare(Producer<?, ?> producer) throws Exception {
        producer.flush();
        call(field(producer, "transactionManager"), "prepareTransaction", 0);
        return prepared(producer);
    }

    /** Producer id and epoch of the transaction that was prepared; -1:-1 where there is none. */
    private static String prepared(Producer<?, ?> producer) throws Exception {
        Object state = call(field(producer, "transactionManager"), "preparedTransactionState", 0);
        return field(state, "producerId") + ":" + field(state, "epoch");
    }

    private static Object field(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private static Object call(Object object, String name, int count, Object... arguments)
            throws Exception {
        Method method = Arrays.stream(object.getClass().getMethods())
            .filter(found -> found.getName().equals(name) && found.getParameterCount() == count)
            .findFirst()
            .orElseThrow(() -> new IllegalStateException("this release has no " + name));
        try {
            return method.invoke(object, arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exception) {
                throw (Exception) error.getCause();
            }
            throw error;
        }
    }
}
