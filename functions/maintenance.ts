import { timer } from "./kit.ts";

/** Rows that only mean something for a while, such as counted calls and failed sign-ins, are cleared once a day. */
export const timers = [
  timer({
    name: "clearExpiredRows",
    schedule: "0 17 3 * * *",
    handle: async ({ services, requestId }) => {
      await services.limiter.cleanUp();
      await services.access.cleanUp();
      await services.failedMessages.cleanUp();
      await services.sso.cleanUp({ actor: "system", requestId });
    },
  }),
];
