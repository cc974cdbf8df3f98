"""The report as one page that opens anywhere: no request, no library."""
