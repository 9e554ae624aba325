import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;

/** Asks discover as the engine's JVM does: its trust store decides whether the daemon is believed. */
public class Discover {
    public static void main(String[] arguments) throws Exception {
        HttpURLConnection connection = (HttpURLConnection) new URL(arguments[0]).openConnection();
        connection.setConnectTimeout(10000);
        connection.setReadTimeout(30000);
        connection.setDoOutput(true);
        connection.setRequestProperty("Content-Type", "text/xml");
        try (OutputStream out = connection.getOutputStream()) {
            String call = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><methodCall>"
                    + "<methodName>discover</methodName><params/></methodCall>";
            out.write(call.getBytes(StandardCharsets.UTF_8));
        }
        try (InputStream in = connection.getInputStream()) {
            System.out.write(in.readAllBytes());
            System.out.flush();
        }
    }
}
