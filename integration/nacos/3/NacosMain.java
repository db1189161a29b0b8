import com.alibaba.nacos.NacosServerBasicApplication;
import com.alibaba.nacos.NacosServerWebApplication;
import com.alibaba.nacos.core.listener.startup.NacosStartUp;
import com.alibaba.nacos.core.listener.startup.NacosStartUpManager;
import com.alibaba.nacos.sys.env.DeploymentType;
import com.alibaba.nacos.sys.env.EnvUtil;
import java.nio.file.Path;
import java.sql.DriverManager;
import java.sql.SQLException;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;

/** Starts a real Nacos 3 server without its console. */
public class NacosMain {

    public static void main(String[] args) throws SQLException {
        openDatabase();
        EnvUtil.setDeploymentType(DeploymentType.getType("server"));
        NacosStartUpManager.start(NacosStartUp.CORE_START_UP_PHASE);
        var core = new SpringApplicationBuilder(NacosServerBasicApplication.class).web(WebApplicationType.NONE).run(args);
        NacosStartUpManager.start(NacosStartUp.WEB_START_UP_PHASE);
        new SpringApplicationBuilder(NacosServerWebApplication.class).parent(core).run(args);
        System.out.println("NACOS-READY");
    }

    /**
     * Opens the database that the server is about to use. The server itself gives up after ten seconds, which making a
     * new one has on a busy machine; one that is open in this process already is there at once.
     */
    private static void openDatabase() throws SQLException {
        var directory = Path.of(System.getProperty("nacos.home"), "data", "derby-data");
        DriverManager.getConnection("jdbc:derby:" + directory + ";create=true", "nacos", "nacos").close();
    }
}
