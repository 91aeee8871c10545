"""What other systems' files say, as fairlead's own configuration."""
