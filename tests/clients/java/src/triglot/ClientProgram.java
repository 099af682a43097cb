package triglot;

/** Makes the Java client do what a test says. */
public final class ClientProgram {
    private ClientProgram() {}

    public static void main(String[] arguments) throws Exception {
        CommandLoop.run(arguments, ClientProgram::run);
    }

    private static Object run(Command command) throws Exception {
        switch (command.name) {
            case "produce":
                return Records.produce(command);
            case "deliver":
                return Records.deliver(command);
            case "begin-transactions":
                return Records.beginTransactions(command);
            case "consume":
                return Records.consume(command);
            case "read-on":
                return Records.readOn(command);
            default:
                return Administration.run(command);
        }
    }
}
