package meter

import "tidewait/internal/ledger"

// Codes are the waits there are, by kind: all of them are reported, those that
// nobody has as zero.
var Codes = ledger.WaitCodes()

// Kinds of leaks that agents report, as they are named in what they send.
var leakKinds = []string{"directories", "processes", "cgroups", "journals", "machines"}
