import com.alibaba.nacos.consistency.cp.CPProtocol;
import com.alibaba.nacos.consistency.cp.RequestProcessor4CP;
import com.alibaba.nacos.core.code.ControllerMethodsCache;
import com.alibaba.nacos.core.distributed.raft.JRaftProtocol;
import com.alibaba.nacos.plugin.auth.exception.AccessException;
import java.nio.file.Path;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Collection;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.servlet.ServletComponentScan;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.http.HttpStatus;
import org.springframework.http.ResponseEntity;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;

/** Starts a real Nacos 2 server. Its console module cannot be had, so what that does for others is done here. */
@SpringBootApplication(scanBasePackages = "com.alibaba.nacos")
@ServletComponentScan("com.alibaba.nacos")
@EnableScheduling
public class NacosMain {

    public static void main(String[] args) throws ReflectiveOperationException, SQLException {
        openDatabase();
        startRaftGroups(SpringApplication.run(NacosMain.class, args));
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

    /** Without it no HTTP request is ever checked for its user. */
    @Bean
    Object checkedControllers(ControllerMethodsCache cache) {
        for (String part : new String[] {"core.controller", "naming.controllers", "config.server.controller"}) {
            cache.initClassMethod("com.alibaba.nacos." + part);
        }
        return new Object();
    }

    /** Without it a wrong password answers 500. */
    @RestControllerAdvice
    static class Denied {
        @ExceptionHandler(AccessException.class)
        ResponseEntity<String> denied(AccessException e) {
            return ResponseEntity.status(HttpStatus.FORBIDDEN).body(e.getErrMsg());
        }
    }

    /** These jars do not start the groups themselves, and without them every persistent instance is refused. */
    private static void startRaftGroups(ApplicationContext context) throws ReflectiveOperationException {
        var field = JRaftProtocol.class.getDeclaredField("raftServer");
        field.setAccessible(true);
        Object server = field.get(context.getBean(CPProtocol.class));
        var start = server.getClass().getDeclaredMethod("createMultiRaftGroup", Collection.class);
        start.setAccessible(true);
        start.invoke(server, context.getBeansOfType(RequestProcessor4CP.class).values());
    }
}
