import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Redisson as a peer of the benchmark: answers the commands of benches/compare/PROTOCOL.md.
 *
 * <p>A task is a thread, but for those of wait-many: 10,000 threads would mostly show what threads weigh, so each of
 * these is a lockAsync of a thread id of its own.
 *
 * <p>The JVM's flags and Redisson's settings are their defaults, except those that {@link Clients} names.
 */
public final class Bench {
    private interface Command {
        String run(String[] words) throws Exception;
    }

    private static final String END = "\n";
    private static final int LAST_ANSWER_WITHIN_SECONDS = 60;

    private final Map<String, Command> commands = new HashMap<>();

    private Bench(Clients clients) {
        Rounds rounds = new Rounds(clients);
        commands.put("pair", words -> rounds.pair(
                words[0], number(words[1]), seconds(words[2]), seconds(words[3])));
        commands.put("contend", words -> rounds.contend(
                words[0], number(words[1]), seconds(words[2]), seconds(words[3])));
        commands.put("mixed", words -> rounds.mixed(
                number(words[0]), number(words[1]), seconds(words[2]), seconds(words[3])));
        commands.put("permits", words -> rounds.permits(
                number(words[0]), number(words[1]), seconds(words[2]), seconds(words[3])));
        Turns turns = new Turns(clients);
        commands.put("turns", words -> turns.run(
                words[0], words[1].split(","), words[2], Turns.Pause.of(words[3]), Turns.Pause.of(words[4]),
                seconds(words[5]), seconds(words[6])));
        Line line = new Line(clients);
        commands.put("hold", words -> line.hold(words[0], words[1]));
        commands.put("wait", words -> line.join(words[0], words[1], number(words[2])));
        commands.put("free", words -> line.free());
        commands.put("times", words -> line.times());
        Many many = new Many(clients);
        commands.put("hold-many", words -> many.hold(words[0], number(words[1])));
        commands.put("free-many", words -> many.free());
        commands.put("wait-many", words -> many.await(words[0], number(words[1]), number(words[2])));
        commands.put("give-up", words -> many.giveUp());
        Multi multi = new Multi(clients);
        commands.put("take", multi::take);
        commands.put("release", words -> multi.release());
        commands.put("start", words -> clients.start());
    }

    public static void main(String[] argv) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (argv.length != 1) {
            System.err.println("usage: Bench <redis url>");
            System.exit(2);
        }
        Bench bench = new Bench(new Clients(argv[0]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        new Thread(() -> read(in, lines)).start();
        out.println("ready");
        for (String line = lines.take(); !line.equals(END); line = lines.take()) {
            if (!line.isBlank()) {
                out.println(bench.answer(line.trim().split(" +")));
            }
        }
        // Whatever still waits or is held ends with the process, and its connections with it.
        Runtime.getRuntime().halt(0);
    }

    /** Reads on while a command runs: whose input has ended has nobody to answer, and does not hang for nobody. */
    private static void read(BufferedReader in, BlockingQueue<String> lines) {
        try {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                lines.put(line);
            }
            lines.put(END);
            TimeUnit.SECONDS.sleep(LAST_ANSWER_WITHIN_SECONDS);
        } catch (IOException | InterruptedException e) {
            e.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private String answer(String[] words) {
        try {
            Command command = commands.get(words[0]);
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + words[0]);
            }
            return command.run(Arrays.copyOfRange(words, 1, words.length));
        } catch (Throwable e) {
            e.printStackTrace();
            return "{\"error\":\"" + e.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}";
        }
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private static double seconds(String word) {
        return Double.parseDouble(word);
    }
}
