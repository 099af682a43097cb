"""A map of what the tests share.

Brokers of ours
    server_process      a server in a process of its own: started, waited for, stopped, killed
    broker_process      our broker in such a process, as a user starts it
    proxy_process       `triglot faults` in such a process, in front of any broker
    tap_process         `triglot tap listen` in such a process
    interruptible       children that an interruption ends, wherever the tests run
    fake_connection     a broker in the test's process, and connections with the test at the far end
    running_controller  our broker in a thread of the test's process, with a controller's listener
    old_reader          a broker in the test's process, with logs filled behind its back
    installed           the distribution, built from a copy of the checkout and installed

Clients made of raw requests
    secured             brokers with TLS and SASL, and what a client of theirs has to say
    kerberos            a realm with its KDC, brokers in it, and what a client with a ticket says
    certificates        an authority of a test's own, and what it certifies
    wire_client         one blocking socket and our declarations of messages
    typed_bytes         a command as a user types it, with its output as bytes
    caller              create, produce, fetch, list offsets
    group_caller        members of classic groups, and what else is asked of groups
    consumer_member     a member of a consumer group (KIP-848), made of heartbeats
    administrator       all that changes the metadata of a cluster, and asks for them
    broker_changes      settings of a running broker, changed and read
    topic_changes       settings of a topic, changed by both requests that do it
    zstd_fetches        topics with zstd, and what each version of Fetch brings of them
    metadata_fetches    fetches of the metadata log, and what is in their answers
    scraped             the metrics page of a broker, as a scraper reads it

Stand-ins
    scripted_broker     a broker that answers by a script, over a real socket
    proxied             the proxy of faults between scripts of a client and of a broker
    fake_source         a source for the pipeline's reading, whose logs a test fills and spoils
    memory_filesystem   a file system in memory that knows what would outlive a power cut
    memory_disk         what such a disk remembers, and what a power cut leaves of it
    small_disk          a real file system of a few megabytes, to be filled
    offset_store        committed offsets over a log in memory: the broker's parts, no sockets
    topic_store         the topics of a data directory, without a broker

Records and files
    old_sets            sets of formats 0 and 1 made field by field, and sets taken apart
    compacted           keyed records to be compacted, and a look at what the cleaner does
    transaction_ends    the ends of transactions, waited for
    disk_usage          how much a folder holds, while a broker changes it
    capture             frames of real clients, captured for tests/protocol/corpus

Apache Kafka and other programs
    fetched             programs that some tests run, fetched once into a cache
    release_ranges      the versions of each API in every release, read from the jars of its clients
    version_sweep       what a broker does with every version of every API
    kafka_release       the releases of Apache Kafka that tests run
    kafka_process       Apache Kafka in a process of its own
    old_kafka           Apache Kafka from before KRaft, with its ZooKeeper
    kafka_follower      a broker of Apache Kafka that follows the metadata log of ours
    kafka_tools         Apache Kafka's command line tools
    dump_log_segments   what its DumpLogSegments says of files
    s3_server           a server of S3 in a process of its own, with its objects in a folder
    apicurio            Apicurio Registry in a process of its own, with its schemas in memory
    iceberg_rest        Iceberg's own REST catalog in a process of its own, with tables in SQLite
    spark_connector     Spark's connector to Kafka, for the sessions of tests
"""
