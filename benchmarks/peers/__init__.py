"""This log beside what a user would pick instead: Apache Kafka, NATS JetStream, etcd."""
