"""The client: connections to brokers of every age, who leads what, and what is asked of them."""
