package org.bridge.demo;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import org.bridge.console.Console;

/**
 * A Dubbo application driven by lines on its standard input, so that one JVM serves a whole test:
 *
 * <pre>
 * provide ID PROTOCOL PORT [host=IP] [version=V] [group=G] [registry=URL] [app=NAME] [register=interface|instance|all]
 *         [metadata=local|remote] [weight=N] [tag=T] [param.NAME=VALUE]...
 * refer ID REGISTRY-URL [version=V] [group=G] [protocol=P] [provided-by=APP] [migration=STEP] [retries=N]
 * call ID TEXT
 * serve PORT
 * stop ID
 * </pre>
 *
 * serve answers GET /call/ID/TEXT over HTTP. Where there are arguments, each is such a command, and
 * the application runs until it is killed.
 *
 * Between the answers come lines <code>addresses HOST:PORT,...</code> and <code>colors VALUE,...</code>, of
 * the parameter color, one of each for each list that a registry hands to a consumer.
 */
public final class Main {
    private static final Map<String, AutoCloseable> parties = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            for (String command : args) {
                Console.say("ok " + command + ": " + execute(command.split(" ")));
            }
            Thread.currentThread().join();
        }
        Console.run(Main::execute);
    }

    private static String execute(String[] words) throws Exception {
        switch (words[0]) {
            case "provide":
                parties.put(words[1], new Provider(words[2], Integer.parseInt(words[3]), Settings.of(words, 4)));
                return "provides";
            case "refer":
                parties.put(words[1], new Consumer(words[2], Settings.of(words, 3)));
                return "refers";
            case "call":
                return call(words[1], words[2]);
            case "serve":
                serve(Integer.parseInt(words[1]));
                return "serves";
            case "stop":
                parties.remove(words[1]).close();
                return "stopped";
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static String call(String id, String text) {
        return ((Consumer) parties.get(id)).call(text);
    }

    private static void serve(int port) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(port), 0);
        server.createContext("/call/", Main::answer);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }

    /** Answers with what the provider said, or with 502 and why there is no answer. */
    private static void answer(HttpExchange exchange) throws IOException {
        String[] path = exchange.getRequestURI().getPath().split("/");
        int status = 200;
        String text;
        try {
            text = call(path[2], path[3]);
        } catch (Throwable e) {
            status = 502;
            text = Console.oneLine(e);
        }
        byte[] body = (text + "\n").getBytes(StandardCharsets.UTF_8);
        try (exchange) {
            exchange.sendResponseHeaders(status, body.length);
            exchange.getResponseBody().write(body);
        }
    }

    private Main() {}
}
