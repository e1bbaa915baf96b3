import { beforeAll } from "vitest";
import { service } from "./fixture.ts";

/** A host of the same service without a license. */
export let unlicensed: string;
beforeAll(async () => {
  ({ url: unlicensed } = await service.addHost({ LICENSE_KEY: "" }));
});
