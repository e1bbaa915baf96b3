import { beforeAll } from "vitest";
import { service } from "./opened.ts";

/** The same service with the rate limits of a deployment that sets none. */
export let limited: string;
beforeAll(async () => {
  ({ url: limited } = await service.addHost({ RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000" }));
});
