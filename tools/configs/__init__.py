"""Settings of topics, brokers and other resources, asked of a running broker and changed."""
