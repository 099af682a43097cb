import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Iceberg's own implementation of its REST API, over its catalog for JDBC, on loopback. */
final class RestCatalog {
  private RestCatalog() {}

  public static void main(String[] arguments) throws Exception {
    var catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize("rest", Map.of(
        "uri", "jdbc:sqlite:" + arguments[0] + "/catalog.db",
        "warehouse", arguments[0] + "/warehouse",
        "jdbc.schema-version", "V1"));
    var server = new Server();
    var connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(arguments[1]));
    server.addConnector(connector);
    var context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    server.setHandler(context);
    server.start();
    System.out.println("listening on 127.0.0.1:" + connector.getLocalPort());
  }
}
