/**
 * Preload (`node --import`) for Azurite, which azurite.ts starts with an IPC channel. When the parent process closes the
 * channel or ends, Azurite shuts down as on SIGTERM, so that no process is left behind.
 */
process.on("disconnect", () => {
  // Before Azurite has started, it has no SIGTERM listener, so the process exits at once.
  if (!process.emit("SIGTERM")) process.exit();
});
