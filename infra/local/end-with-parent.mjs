/**
 * Preload (`node --import`) for Azurite, which is started with an IPC channel. Azurite shuts down as on SIGTERM when the parent
 * disconnects or ends, so that no process is left behind.
 */
process.on("disconnect", () => {
  // Azurite listens to the signal once it has started.
  if (!process.emit("SIGTERM")) process.exit();
});
