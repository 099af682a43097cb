package triglot;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/**
 * What an administrator asks of a cluster: {@code ClusterAdmin BOOTSTRAP TOPIC NODE USER}.
 *
 * <p>Prints a line {@code name=value} for each; an error is its code.
 */
public final class ClusterAdmin {
    private final Admin admin;
    private final TopicPartition partition;
    private final int node;
    private final String user;

    private ClusterAdmin(Admin admin, String topic, int node, String user) {
        this.admin = admin;
        this.partition = new TopicPartition(topic, 0);
        this.node = node;
        this.user = user;
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(properties)) {
            ClusterAdmin one =
                new ClusterAdmin(admin, arguments[1], Integer.parseInt(arguments[2]), arguments[3]);
            one.logDirs();
            one.elections();
            one.reassignments();
            one.quotas();
            one.passwords();
            one.features();
        }
    }

    private void logDirs() throws Exception {
        Map<String, LogDirDescription> found =
            admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        LogDirDescription dir = found.values().iterator().next();
        ReplicaInfo replica = dir.replicaInfos().get(partition);
        say("size", replica.size() + " " + replica.offsetLag() + " " + replica.isFuture());
        say("room", dir.totalBytes().getAsLong() > dir.usableBytes().getAsLong());
    }

    private void elections() throws Exception {
        Map<TopicPartition, Optional<Throwable>> found =
            admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
        say("elect", Errors.forException(found.get(partition).get()).code());
        found = admin.electLeaders(ElectionType.PREFERRED, null).partitions().get();
        say("elect-all", found.size());
    }

    private void reassignments() throws Exception {
        say("stay", code(move(Optional.of(new NewPartitionReassignment(List.of(node))))));
        say("move", code(move(Optional.of(new NewPartitionReassignment(List.of(node + 1))))));
        say("cancel", code(move(Optional.empty())));
        say("moving", admin.listPartitionReassignments().reassignments().get().size());
    }

    private KafkaFuture<Void> move(Optional<NewPartitionReassignment> where) {
        return admin.alterPartitionReassignments(Map.of(partition, where)).all();
    }

    private void quotas() throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        say("quota-set", code(quota(entity, "producer_byte_rate", 1024.0, false)));
        say("quota-wrong", code(quota(entity, "producer_byte_rate", -1.0, false)));
        say("quota-validated", code(quota(entity, "consumer_byte_rate", 1.0, true)));
        ClientQuotaFilter filter =
            ClientQuotaFilter.containsOnly(
                List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)));
        say("quota", new TreeMap<>(admin.describeClientQuotas(filter).entities().get().get(entity)));
        say("quota-removed", code(quota(entity, "producer_byte_rate", null, false)));
        say("quotas", admin.describeClientQuotas(filter).entities().get().size());
    }

    private KafkaFuture<Void> quota(
            ClientQuotaEntity entity, String key, Double value, boolean validateOnly) {
        ClientQuotaAlteration alteration =
            new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key, value)));
        AlterClientQuotasOptions options = new AlterClientQuotasOptions().validateOnly(validateOnly);
        return admin.alterClientQuotas(List.of(alteration), options).all();
    }

    private void passwords() throws Exception {
        say("password-set", code(password(8192)));
        say("password-wrong", code(password(100)));
        ScramCredentialInfo info =
            admin.describeUserScramCredentials(List.of(user)).description(user).get()
                .credentialInfos().get(0);
        say("password", info.mechanism().type() + " " + info.iterations());
        for (String name : List.of("password-removed", "password-missing")) {
            say(name, code(admin.alterUserScramCredentials(List.of(
                new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512))).all()));
        }
        say("user-missing", code(
            admin.describeUserScramCredentials(List.of(user)).description(user)));
    }

    private KafkaFuture<Void> password(int iterations) {
        byte[] secret = "pencil".getBytes(StandardCharsets.UTF_8);
        ScramCredentialInfo info =
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, iterations);
        return admin.alterUserScramCredentials(
            List.of(new UserScramCredentialUpsertion(user, info, secret))).all();
    }

    private void features() throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        say("level", features.finalizedFeatures().get("metadata.version").maxVersionLevel());
        say("known", features.supportedFeatures().get("metadata.version").minVersion());
        say("epoch", features.finalizedFeaturesEpoch().get() > 0);
        say("lower", code(level(20, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)));
        say("lower-unsaid", code(level(20, FeatureUpdate.UpgradeType.UPGRADE)));
        say("lower-with-loss", code(level(14, FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE)));
        say("too-high", code(level(99, FeatureUpdate.UpgradeType.UPGRADE)));
    }

    private KafkaFuture<Void> level(int level, FeatureUpdate.UpgradeType how) {
        Map<String, FeatureUpdate> updates =
            Map.of("metadata.version", new FeatureUpdate((short) level, how));
        return admin.updateFeatures(updates, new UpdateFeaturesOptions().validateOnly(true)).all();
    }

    private static int code(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return 0;
        } catch (ExecutionException failure) {
            return Errors.forException(failure.getCause()).code();
        }
    }

    private static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }
}
