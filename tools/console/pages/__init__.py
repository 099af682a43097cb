"""A module for each page: from a `Visit` to what is shown. None knows the framework."""
