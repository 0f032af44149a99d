"""Cases and known mistakes with which implementations are told right from wrong."""
