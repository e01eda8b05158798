import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

public class Outbox {
    /** Writes an order and its message, both or neither; false if it was placed before. */
    static boolean place(Connection db, long order, String total) throws SQLException {
        String key = "order-" + order + "-placed";
        // A JSON library belongs here; these values need no escaping.
        String event = "{\"event_id\": \"%s\", \"order\": %d, \"total\": \"%s\"}".formatted(key, order, total);
        return transaction(db, () -> {
            String id = value(db, """
                select outbox.enqueue(key => ?, queue => 'orders', ordering_key => ?, payload => ?::jsonb)
                """, key, "order-" + order, event);
            if (id == null) {
                return false;
            }
            execute(db, "insert into orders (id, total) values (?, ?::numeric)", order, total);
            return true;
        });
    }

    /** In thirty days. With delay_seconds => 300 the queue would wait instead. */
    static void schedule(Connection db, String key, long order) throws SQLException {
        String event = "{\"event_id\": \"%s\", \"order\": %d}".formatted(key, order);
        transaction(db, () -> value(db, """
            select outbox.enqueue(key => ?, queue => 'mails', payload => ?::jsonb,
                deliver_at => now() + interval '30 days')
            """, key, event));
    }

    /** Returns the number of messages that were there. */
    static int withdraw(Connection db, String key) throws SQLException {
        return transaction(db, () -> execute(db, "delete from outbox.messages where key = ?", key));
    }

    /** Acts once on a message that the queue delivered; a repeat gets the first answer. */
    static String handle(Connection db, String eventId, long order) throws SQLException {
        return transaction(db, () -> {
            boolean mine = value(db, "select outbox.claim('mailer', ?, interval '30 days')", eventId).equals("t");
            if (mine) {
                String mail = value(db, "insert into mails (order_id) values (?) returning id", order);
                execute(db, """
                    update outbox.claims set result = jsonb_build_object('mail', ?::bigint)
                    where consumer = 'mailer' and event_id = ?
                    """, mail, eventId);
            }
            String result = value(db,
                "select result from outbox.claims where consumer = 'mailer' and event_id = ?", eventId);
            return (mine ? "handled " : "handled before ") + result;
        });
    }

    interface Work<T> {
        T run() throws SQLException;
    }

    /** Commits what the work did, and rolls back if it throws. */
    static <T> T transaction(Connection db, Work<T> work) throws SQLException {
        try {
            T result = work.run();
            db.commit();
            return result;
        } catch (SQLException | RuntimeException e) {
            db.rollback();
            throw e;
        }
    }

    /** The first column of the first row, as text. */
    static String value(Connection db, String sql, Object... parameters) throws SQLException {
        try (PreparedStatement s = prepare(db, sql, parameters); ResultSet rows = s.executeQuery()) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    /** The number of rows that the statement changed. */
    static int execute(Connection db, String sql, Object... parameters) throws SQLException {
        try (PreparedStatement s = prepare(db, sql, parameters)) {
            return s.executeUpdate();
        }
    }

    static PreparedStatement prepare(Connection db, String sql, Object... parameters) throws SQLException {
        PreparedStatement s = db.prepareStatement(sql);
        for (int i = 0; i < parameters.length; i++) {
            s.setObject(i + 1, parameters[i]);
        }
        return s;
    }

    public static void main(String[] args) throws SQLException {
        // JDBC's URLs have the user among the parameters.
        URI at = URI.create(System.getenv("DATABASE_URL"));
        String[] login = at.getUserInfo().split(":", 2);
        String url = "jdbc:postgresql://" + at.getHost() + ":" + at.getPort() + at.getPath();
        try (Connection db = DriverManager.getConnection(url, login[0], login.length > 1 ? login[1] : null)) {
            db.setAutoCommit(false);
            for (int i = 0; i < 2; i++) {
                System.out.println(place(db, 1041, "12.50") ? "placed" : "seen before");
            }

            schedule(db, "order-1041-review", 1041);
            System.out.println("withdrawn " + withdraw(db, "order-1041-review"));

            try {
                place(db, 1042, "x".repeat(256000));
            } catch (SQLException e) {
                System.out.println("too large: " + e.getSQLState());
            }

            for (int i = 0; i < 2; i++) {
                System.out.println(handle(db, "order-1041-placed", 1041));
            }
        }
    }
}
