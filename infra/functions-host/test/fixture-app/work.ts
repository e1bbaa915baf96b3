import { app, type InvocationContext, type Timer } from "@azure/functions";

// Queue functions, timers and hooks. They report their input on standard output, one line of JSON each.

function saw(name: string, what: unknown): void {
  console.log(JSON.stringify({ saw: name, what }));
}

function listen(name: string, handler: (message: unknown, context: InvocationContext) => unknown): void {
  app.storageQueue(name, { queueName: `%PREFIX%-${name.toLowerCase()}`, connection: "WORK", handler });
}

listen("takes", (message, context) => saw("takes", { message, metadata: context.triggerMetadata }));
listen("fails", (message, context) => {
  saw("fails", { message, dequeueCount: context.triggerMetadata?.dequeueCount });
  throw new Error("failed on purpose");
});
let running = 0;
listen("slowly", async (message) => {
  running += 1;
  saw("slowly", { message, running });
  const factor = typeof message === "number" && message % 2 === 1 ? 4 : 1;
  await new Promise((resolve) => setTimeout(resolve, factor * Number(process.env.SLOW_MS ?? 0)));
  running -= 1;
});

let often = 0;
app.timer("often", {
  schedule: process.env.OFTEN ?? "0 0 0 1 1 *",
  handler: async (timer: Timer) => {
    often += 1;
    saw("often", { ...timer, running: often });
    await new Promise((resolve) => setTimeout(resolve, Number(process.env.OFTEN_MS ?? 0)));
    often -= 1;
    if (process.env.OFTEN_MS !== undefined) throw new Error("failed on purpose");
  },
});
app.timer("atStart", {
  schedule: "0 0 0 1 1 *",
  runOnStartup: process.env.AT_START === "true",
  useMonitor: false,
  handler: (timer: Timer) => saw("atStart", timer),
});
app.timer("daily", { schedule: "0 0 3 * * *", handler: (timer: Timer) => saw("daily", timer) });
app.timer("retried", {
  schedule: "0 0 0 1 1 *",
  retry: { strategy: "fixedDelay", delayInterval: 0, maxRetryCount: 2 },
  handler: (_timer: Timer, context: InvocationContext) => {
    saw("retried", context.retryContext?.retryCount ?? 0);
    throw new Error("failed on purpose");
  },
});
app.timer("badSchedule", { schedule: "0 0 3 L * *", handler: () => {} });

app.hook.appStart(() => saw("appStart", null));
app.hook.appTerminate(() => saw("appTerminate", null));
app.hook.preInvocation(({ invocationContext, hookData }) => {
  hookData.name = invocationContext.functionName;
});
app.hook.postInvocation(({ hookData, invocationContext }) => {
  if (invocationContext.functionName === "daily") saw("postInvocation", hookData.name);
});
