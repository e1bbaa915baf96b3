/** Baseline of the startup benchmark: an app with one function that does nothing. */
import { app } from "@azure/functions";

app.http("empty", { methods: ["GET"], route: "health", authLevel: "anonymous", handler: () => ({ status: 200 }) });
