"""What must be true when weights are published under a prefix cache: protocols, scopes, wrong variants."""
