import { beforeAll } from "vitest";
import { service } from "./fixture.ts";

/** The address of a host of the same service with the default rate limits. The service's first host has none. */
export let limitedHost: string;
beforeAll(async () => {
  ({ url: limitedHost } = await service.addHost({ RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000" }));
});
