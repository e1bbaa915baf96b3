import { timer } from "./declare.ts";

/** Deletes expired rows once a day, such as rate limit counters and failed sign-ins. */
export const timers = [
  timer({
    name: "clearExpiredRows",
    schedule: "0 17 3 * * *",
    handle: async ({ services, requestId }) => {
      await services.limiter.cleanUp();
      await services.idempotency.cleanUp();
      await services.access.cleanUp();
      await services.failedMessages.cleanUp();
      await services.unreadableRows.removeResolved();
      await services.sso.cleanUp({ actor: "system", requestId });
      await services.approvals.cleanUp({ actor: "system", requestId });
      await services.proposals.cleanUp();
      await services.auditStreams.cleanUp({ actor: "system", requestId });
    },
  }),
];
