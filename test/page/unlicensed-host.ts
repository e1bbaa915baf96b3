import { beforeAll } from "vitest";
import { service } from "./fixture.ts";

/** The address of a host of the same service that has no license. */
export let unlicensedHost: string;
beforeAll(async () => {
  ({ url: unlicensedHost } = await service.addHost({ LICENSE_KEY: "" }));
});
