import { app, type InvocationContext, type Timer } from "@azure/functions";

// Queue functions, timers and hooks of the app that the tests of the Functions host run. Each reports what it received as one
// JSON line on standard output, which the test reads. Environment variables set the schedules and durations.

function report(name: string, what: unknown): void {
  console.log(JSON.stringify({ saw: name, what }));
}

/** Registers a queue function whose queue is named after the test's prefix and the function. */
function registerQueueFunction(name: string, handler: (message: unknown, context: InvocationContext) => unknown): void {
  app.storageQueue(name, { queueName: `%PREFIX%-${name.toLowerCase()}`, connection: "WORK", handler });
}

registerQueueFunction("takes", (message, context) => report("takes", { message, metadata: context.triggerMetadata }));
registerQueueFunction("fails", (message, context) => {
  report("fails", { message, dequeueCount: context.triggerMetadata?.dequeueCount });
  throw new Error("failed on purpose");
});
/** Number of messages that `slowly` is processing. */
let runningMessages = 0;
registerQueueFunction("slowly", async (message) => {
  runningMessages += 1;
  report("slowly", { message, running: runningMessages });
  // Odd numbers take four times as long, so that the messages of a batch finish at different times.
  const factor = typeof message === "number" && message % 2 === 1 ? 4 : 1;
  await new Promise((resolve) => setTimeout(resolve, factor * Number(process.env.SLOW_MS ?? 0)));
  runningMessages -= 1;
});

const ONCE_A_YEAR = "0 0 0 1 1 *";
/** Number of runs of the timer `often` that are in progress. */
let runningTimers = 0;
app.timer("often", {
  schedule: process.env.OFTEN ?? ONCE_A_YEAR,
  handler: async (timer: Timer) => {
    runningTimers += 1;
    report("often", { ...timer, running: runningTimers });
    await new Promise((resolve) => setTimeout(resolve, Number(process.env.OFTEN_MS ?? 0)));
    runningTimers -= 1;
    if (process.env.OFTEN_MS !== undefined) throw new Error("failed on purpose");
  },
});
app.timer("atStart", {
  schedule: ONCE_A_YEAR,
  runOnStartup: process.env.AT_START === "true",
  useMonitor: false,
  handler: (timer: Timer) => report("atStart", timer),
});
app.timer("daily", { schedule: "0 0 3 * * *", handler: (timer: Timer) => report("daily", timer) });
app.timer("retried", {
  schedule: ONCE_A_YEAR,
  retry: { strategy: "fixedDelay", delayInterval: 0, maxRetryCount: 2 },
  handler: (_timer: Timer, context: InvocationContext) => {
    report("retried", context.retryContext?.retryCount ?? 0);
    throw new Error("failed on purpose");
  },
});
// `L` (last day) is not valid in NCRONTAB.
app.timer("badSchedule", { schedule: "0 0 3 L * *", handler: () => {} });

app.hook.appStart(() => report("appStart", null));
app.hook.appTerminate(() => report("appTerminate", null));
app.hook.preInvocation(({ invocationContext, hookData }) => {
  hookData.name = invocationContext.functionName;
});
app.hook.postInvocation(({ hookData, invocationContext }) => {
  if (invocationContext.functionName === "daily") report("postInvocation", hookData.name);
});
