package org.bridge.demo;

import java.util.HashMap;
import java.util.Map;

/** The optional part of a command: words of the form name=value. */
final class Settings {
    private final Map<String, String> values = new HashMap<>();

    static Settings of(String[] words, int from) {
        Settings s = new Settings();
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            s.values.put(pair[0], pair[1]);
        }
        return s;
    }

    /** Returns null, which Dubbo reads as not set, where the command does not name the setting. */
    String get(String name) {
        return values.get(name);
    }

    /** Returns those settings, without the beginning of their names; null where there are none. */
    Map<String, String> startingWith(String prefix) {
        Map<String, String> found = new HashMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), value);
            }
        });
        return found.isEmpty() ? null : found;
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }
}
