import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** Hive's metastore on loopback: its own main program listens on all addresses. */
final class Metastore {
  private Metastore() {}

  public static void main(String[] arguments) throws Exception {
    var folder = arguments[0];
    var conf = new HiveConf();
    conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + folder + "/db;create=true");
    conf.set("hive.metastore.warehouse.dir", folder + "/warehouse");
    conf.set("hive.metastore.schema.verification", "false");
    conf.set("datanucleus.schema.autoCreateAll", "true");
    conf.set("datanucleus.connectionPoolingType", "none");
    var handler = new HiveMetaStore.HMSHandler("metastore", conf);
    try {
      // The tables of its locks, which it makes for itself in no other way.
      TxnDbUtil.prepDb(conf);
    } catch (java.sql.SQLException failure) {
      if (!"X0Y32".equals(failure.getSQLState())) { // They are there from an earlier run.
        throw failure;
      }
    }
    var socket = new TServerSocket(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[1])));
    System.out.println("listening on 127.0.0.1:" + socket.getServerSocket().getLocalPort());
    new TThreadPoolServer(
        new TThreadPoolServer.Args(socket).processor(new TSetIpAddressProcessor<>(handler))).serve();
  }
}
