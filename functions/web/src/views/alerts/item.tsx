import { Link } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";

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

/** One thing that a rule tells of; an asset leads to it, and a violation to all of its check, with what mends them. */
export function Item({ item: { kind, id, credentialTitle, expiresOn, since } }: { item: AlertItem }) {
  return (
    <>
      {KINDS[kind]} <What kind={kind} id={id} name={credentialTitle === null ? id : isolated(credentialTitle)} />
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

function What({ kind, id, name }: Pick<AlertItem, "kind" | "id"> & { name: string }) {
  if (kind === "asset") return <Link href={createHref(`/inventory/${encodeURIComponent(id)}`)}>{name}</Link>;
  if (kind !== "violation") return name;
  // The id of its check, and of what it is about.
  const [check = "", ...about] = id.split(".");
  return (
    <>
      of <Link href={createHref("/compliance", { check })}>{check}</Link> by {about.join(".")}
    </>
  );
}
