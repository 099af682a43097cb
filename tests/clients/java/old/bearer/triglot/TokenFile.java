package triglot;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * Gives the login module of kafka-clients from 2.0 on the signed token in the file that its option
 * {@code tokenFile} names, as handlers of companies do that ask an issuer; those that ask by
 * themselves came with 3.1.
 */
public final class TokenFile implements AuthenticateCallbackHandler {
    private Path file;

    @Override
    public void configure(
            Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        file = Path.of((String) entries.get(0).getOptions().get("tokenFile"));
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (!(callback instanceof OAuthBearerTokenCallback)) {
                throw new UnsupportedCallbackException(callback);
            }
            ((OAuthBearerTokenCallback) callback).token(new Token(Files.readString(file)));
        }
    }

    @Override
    public void close() {}

    private static final class Token implements OAuthBearerToken {
        private final String value;
        private final String claims;

        Token(String value) {
            this.value = value;
            byte[] payload = Base64.getUrlDecoder().decode(value.split("\\.")[1]);
            this.claims = new String(payload, StandardCharsets.UTF_8);
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return Long.parseLong(claim("\"exp\":\\s*(\\d+)")) * 1000;
        }

        @Override
        public String principalName() {
            return claim("\"sub\":\\s*\"([^\"]*)\"");
        }

        @Override
        public Long startTimeMs() {
            return null;
        }

        private String claim(String pattern) {
            Matcher found = Pattern.compile(pattern).matcher(claims);
            if (!found.find()) {
                throw new IllegalArgumentException("no " + pattern + " in the token's claims");
            }
            return found.group(1);
        }
    }
}
