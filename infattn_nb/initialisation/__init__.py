"Scan, rules and report: which initialisation?"
