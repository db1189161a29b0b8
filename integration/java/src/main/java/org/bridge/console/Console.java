package org.bridge.console;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Lets a test drive an application by lines on its standard input. Every line is answered by one line:
 * <code>ok ID ...</code> or <code>error ID ...</code>, where ID is the line's second field.
 */
public final class Console {
    /** What an application does at a line, given as its words. */
    public interface Commands {
        String execute(String[] words) throws Exception;
    }

    /** Executes commands until the input ends, and ends the application with it. */
    public static void run(Commands commands) throws IOException {
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            String id = words.length > 1 ? words[1] : "?";
            try {
                say("ok " + id + " " + commands.execute(words));
            } catch (Throwable e) {
                e.printStackTrace();
                say("error " + id + " " + oneLine(e));
            }
        }
        System.exit(0);
    }

    /** Prints one line that no other thread's line can break. */
    public static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Says what failed in one line. */
    public static String oneLine(Throwable e) {
        return (e.getClass().getSimpleName() + ": " + e.getMessage()).replaceAll("\\s+", " ");
    }

    private Console() {}
}
