import { beforeAll } from "vitest";
import { service } from "./opened.ts";

/** The same service without a licence. */
export let unlicensed: string;
beforeAll(async () => {
  ({ url: unlicensed } = await service.addHost({ LICENSE_KEY: "" }));
});
