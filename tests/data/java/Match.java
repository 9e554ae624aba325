import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.regex.*;

/** Reads patterns, one in a line; which of the values each matches, or that Java refuses it. */
public class Match {
    public static void main(String[] values) throws IOException {
        BufferedReader patterns =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = patterns.readLine()) != null; ) {
            StringBuilder answer = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(line);
                for (String value : values) {
                    answer.append(pattern.matcher(value).matches() ? '1' : '0');
                }
            } catch (PatternSyntaxException error) {
                answer = new StringBuilder("refused");
            }
            System.out.println(answer);
        }
    }
}
