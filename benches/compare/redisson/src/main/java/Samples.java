import java.util.Arrays;
import java.util.function.Function;

/** Every latency of one thread, in nanoseconds. */
final class Samples {
    private long[] values = new long[1 << 10];
    private int size;

    void add(long value) {
        if (size == values.length) {
            values = Arrays.copyOf(values, 2 * size);
        }
        values[size++] = value;
    }

    static <T> long[] sorted(T[] owners, Function<T, Samples> samples) {
        long[] all = Arrays.stream(owners)
                .map(samples)
                .flatMapToLong(part -> Arrays.stream(part.values, 0, part.size))
                .toArray();
        Arrays.sort(all);
        return all;
    }

    static double micros(long[] sorted, double quantile) {
        if (sorted.length == 0) {
            throw new IllegalStateException("no pair began and ended within the measured time");
        }
        return sorted[(int) Math.min(sorted.length - 1, (long) (quantile * sorted.length))] / 1e3;
    }
}
