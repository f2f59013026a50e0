import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Scanner;
import java.util.SplittableRandom;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;

/**
 * Appends to topics of one partition and three replicas. One JVM takes all its commands on stdin, so that its compiler is warm:
 *
 * <pre>
 *   first TOPIC [SETTING=VALUE]   waits for three brokers, makes the topic, appends once, prints the monotonic time in ns
 *   leader TOPIC                  waits until all replicas are in sync, prints the node that leads
 *   probe TOPIC                   one append at a time for ever, "sent acknowledged" in monotonic ns a line
 *   load TOPIC PAYLOAD WINDOW RATE SECONDS SAMPLES LINGER_MS PACK_BYTES
 * </pre>
 *
 * A load has the manners of benchmarks/load.py: it prints when it began, keeps a window of unacknowledged payload bytes full (or, with a
 * rate, follows a schedule whatever comes back), waits for the outcomes, writes the samples (acknowledged ns, appended ns, payloads) and
 * prints a report of one line of JSON. System.nanoTime() is the monotonic clock that all processes of this machine share.
 */
public class KafkaLoad {
    static final int REPLICAS = 3;
    static final int POOL_BYTES = 32 << 20;
    static final int POOL_PAYLOADS_MAX = 65_536;
    static final int SAMPLES_AT_FIRST = 4_000_000;
    /** So that appends are tried again soon after a broker has gone. */
    static final Map<String, Object> QUICK = Map.of("linger.ms", 0, "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 100,
        "retry.backoff.ms", 20, "retry.backoff.max.ms", 100);

    static String servers;
    static long[] acknowledgedNs = new long[SAMPLES_AT_FIRST];
    static long[] appendedNs = new long[SAMPLES_AT_FIRST];
    static int samples;
    static long errors;
    static String firstError;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        var in = new Scanner(System.in);
        System.out.println("ready");
        while (in.hasNextLine()) {
            String[] words = in.nextLine().trim().split(" ");
            switch (words[0]) {
                case "first" -> first(words[1], words.length > 2 ? words[2] : "");
                case "leader" -> System.out.println(leader(words[1]));
                case "probe" -> probe(words[1]);
                case "load" -> load(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), Double.parseDouble(words[4]),
                    Double.parseDouble(words[5]), words[6], Map.of("linger.ms", Integer.parseInt(words[7]),
                        "batch.size", Integer.parseInt(words[8]), "max.request.size", 8 << 20));
                default -> throw new IllegalArgumentException(words[0] + " is none of first, leader, probe and load");
            }
        }
    }

    static Producer<byte[], byte[]> producer(Map<String, Object> more) {
        var options = new HashMap<String, Object>(Map.of("bootstrap.servers", servers, "acks", "all", "enable.idempotence", true,
            "key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer",
            "value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer"));
        options.putAll(more);
        return new KafkaProducer<>(options);
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", servers, "request.timeout.ms", 2_000, "default.api.timeout.ms", 3_000,
            "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 100, "retry.backoff.ms", 20,
            "retry.backoff.max.ms", 100));
    }

    static void first(String topic, String setting) throws Exception {
        var configs = new HashMap<>(Map.of("min.insync.replicas", "2"));
        if (!setting.isEmpty()) configs.put(setting.split("=")[0], setting.split("=")[1]);
        try (var admin = admin()) {
            var wanted = List.of(new NewTopic(topic, 1, (short) REPLICAS).configs(configs));
            for (boolean isThere = false; !isThere; ) {
                try {
                    admin.createTopics(wanted).all().get();
                    isThere = true;
                } catch (ExecutionException error) {
                    isThere = error.getCause() instanceof TopicExistsException;
                    if (!isThere) Thread.sleep(20);
                }
            }
        }
        try (var producer = producer(QUICK)) {
            producer.send(new ProducerRecord<>(topic, new byte[1024])).get();
            System.out.println(System.nanoTime());
        }
    }

    static int leader(String topic) throws Exception {
        try (var admin = admin()) {
            while (true) {
                try {
                    var partition = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0);
                    boolean isLed = partition.leader() != null && !partition.leader().isEmpty();
                    if (isLed && partition.isr().size() == REPLICAS) return partition.leader().id();
                } catch (ExecutionException error) {
                    System.err.println("asking for the leader: " + error.getCause());
                }
                Thread.sleep(50);
            }
        }
    }

    static void probe(String topic) throws Exception {
        var options = new HashMap<>(QUICK);
        options.putAll(Map.of("delivery.timeout.ms", 120_000, "request.timeout.ms", 2_000));
        try (var producer = producer(options)) {
            while (true) {
                long sentNs = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, new byte[1024])).get();
                System.out.println(sentNs + " " + System.nanoTime());
                Thread.sleep(2);
            }
        }
    }

    static void load(String topic, int size, int window, double rate, double seconds, String path, Map<String, Object> options)
            throws Exception {
        byte[][] pool = randomPayloads(size);
        int room = Math.max(1, window / size);
        var slots = new Semaphore(room);
        boolean isClosedLoop = rate == 0;
        samples = 0;
        errors = 0;
        firstError = "";
        try (var producer = producer(options)) {
            producer.partitionsFor(topic);
            long beganNs = System.nanoTime();
            long untilNs = beganNs + (long) (seconds * 1e9);
            System.out.println(beganNs);
            for (int number = 0; ; number++) {
                long fromNs = isClosedLoop ? admitted(slots) : due(beganNs, number, rate);
                if (fromNs >= untilNs) break;
                producer.send(new ProducerRecord<>(topic, pool[number % pool.length]), (metadata, error) -> {
                    settle(fromNs, error);
                    if (isClosedLoop) slots.release();
                });
            }
        }
        write(path);
        System.out.printf(Locale.ROOT, "{\"errors\": %d, \"error\": \"%s\", \"in_flight\": %d}%n", errors,
            firstError.replaceAll("[^\\w .,:-]", " "), room);
    }

    /** Latency counts from when the window let the payload in. */
    static long admitted(Semaphore slots) throws InterruptedException {
        slots.acquire();
        return System.nanoTime();
    }

    /** Latency counts from when the payload was due; the schedule waits for no answer. */
    static long due(long beganNs, int number, double rate) {
        long dueNs = beganNs + (long) (number / rate * 1e9);
        for (long left = dueNs - System.nanoTime(); left > 0; left = dueNs - System.nanoTime()) LockSupport.parkNanos(left);
        return dueNs;
    }

    /** Called by the producer's network thread, whose work close() waits for; by the sender's own where send() refuses. */
    static synchronized void settle(long fromNs, Exception error) {
        if (error != null) {
            if (errors++ == 0) firstError = error.toString();
            return;
        }
        if (samples == appendedNs.length) {
            acknowledgedNs = Arrays.copyOf(acknowledgedNs, 2 * samples);
            appendedNs = Arrays.copyOf(appendedNs, 2 * samples);
        }
        acknowledgedNs[samples] = System.nanoTime();
        appendedNs[samples++] = fromNs;
    }

    static byte[][] randomPayloads(int size) {
        var random = new SplittableRandom();
        byte[][] pool = new byte[Math.max(1, Math.min(POOL_PAYLOADS_MAX, POOL_BYTES / size))][size];
        for (byte[] payload : pool) random.nextBytes(payload);
        return pool;
    }

    static void write(String path) throws IOException {
        var buffer = ByteBuffer.allocate(3 * 8 * 8_192).order(ByteOrder.LITTLE_ENDIAN);
        try (var file = FileChannel.open(Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.WRITE)) {
            for (int at = 0; at < samples; at++) {
                buffer.putLong(acknowledgedNs[at]).putLong(appendedNs[at]).putLong(1);
                if (!buffer.hasRemaining() || at == samples - 1) {
                    buffer.flip();
                    while (buffer.hasRemaining()) file.write(buffer);
                    buffer.clear();
                }
            }
        }
    }
}
