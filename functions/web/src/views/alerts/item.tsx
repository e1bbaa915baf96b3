import { Link } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";

type AlertItem = Schemas["AlertItem"];

const KINDS: Partial<Record<AlertItem["kind"], string>> = {
  violation: "violation",
  scan: "scan",
  scanFailure: "can't be read:",
  breakGlass: "sign-in",
  renewed: "renewed:",
  recovered: "in order again:",
  stillFailing: "still failing:",
  escalated: "nobody acknowledged",
};

/** One thing that a rule tells of; an asset leads to it. */
export function Item({ item: { kind, id, expiresOn, since } }: { item: AlertItem }) {
  return (
    <>
      {KINDS[kind]} {kind === "asset" ? <Link href={`#/inventory/${encodeURIComponent(id)}`}>{id}</Link> : id}
      {expiresOn && (
        <>
          , expiry <Instant at={expiresOn} />
        </>
      )}
      {since && (
        <>
          , since <Instant at={since} relative />
        </>
      )}
    </>
  );
}
