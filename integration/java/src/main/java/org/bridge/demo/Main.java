package org.bridge.demo;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A Dubbo application driven by lines on its standard input, so that one JVM serves a whole test:
 *
 * <pre>
 * provide ID PROTOCOL PORT [version=V] [group=G] [registry=URL]
 * refer ID REGISTRY-URL [version=V] [group=G] [protocol=P] [provided-by=APP]
 * call ID TEXT
 * stop ID
 * </pre>
 *
 * Every command is answered by one line: <code>ok ID ...</code> or <code>error ID ...</code>. Between
 * them come lines <code>addresses HOST:PORT,...</code>, one for each list that a registry hands to a
 * consumer. It ends when its input ends.
 */
public final class Main {
    private static final Map<String, AutoCloseable> parties = new ConcurrentHashMap<>();

    public static void main(String[] args) throws IOException {
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            String id = words.length > 1 ? words[1] : "?";
            try {
                say("ok " + id + " " + obey(words));
            } catch (Throwable e) {
                e.printStackTrace();
                say("error " + id + " " + oneLine(e));
            }
        }
        System.exit(0);
    }

    private static String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "provide":
                parties.put(words[1], new Provider(words[2], Integer.parseInt(words[3]), Settings.of(words, 4)));
                return "provides";
            case "refer":
                parties.put(words[1], new Consumer(words[2], Settings.of(words, 3)));
                return "refers";
            case "call":
                return ((Consumer) parties.get(words[1])).call(words[2]);
            case "stop":
                parties.remove(words[1]).close();
                return "stopped";
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    /** Prints one line that no other thread's line can break. */
    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String oneLine(Throwable e) {
        return (e.getClass().getSimpleName() + ": " + e.getMessage()).replaceAll("\\s+", " ");
    }

    private Main() {}
}
