import { beforeAll } from "vitest";
import { service } from "./fixture.ts";

/** A host of the same service with the default rate limits. */
export let limited: string;
beforeAll(async () => {
  ({ url: limited } = await service.addHost({ RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000" }));
});
