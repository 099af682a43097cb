package triglot;

import kafka.producer.Partitioner;
import kafka.utils.VerifiableProperties;

/** The number given as the key to partition by is the partition. */
public final class ByNumber implements Partitioner {
    /** The producer makes it by this constructor. */
    public ByNumber(VerifiableProperties properties) {}

    @Override
    public int partition(Object key, int partitions) {
        return (Integer) key;
    }
}
