"""Networks as data (Netsor): what they consist of, their limit, their exact finite width."""
