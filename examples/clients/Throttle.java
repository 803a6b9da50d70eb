// A limit from Java, through any Redis client, here Jedis (redis.clients:jedis): PORT=6380 java -cp jedis.jar:… Throttle.java
import java.util.List;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.commands.ProtocolCommand;

public class Throttle {
    public static void main(String[] arguments) {
        String port = System.getenv().getOrDefault("PORT", "6380");
        ProtocolCommand throttle = () -> "CL.THROTTLE".getBytes();
        try (Jedis weir = new Jedis("127.0.0.1", Integer.parseInt(port))) {
            for (int number = 1; number <= 4; number++) {
                // At most 2 more at once than the pace of 30 an hour.
                List<?> answer = (List<?>) weir.sendCommand(throttle, "java:user42", "2", "30", "3600");
                boolean limited = (Long) answer.get(0) == 1;
                System.out.println(number + ": " + (limited ? "denied, come back in " + answer.get(3) + " s"
                                                            : "passes, " + answer.get(2) + " left"));
            }
        }
    }
}
