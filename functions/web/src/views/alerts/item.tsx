import { Link } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";

type AlertItem = Schemas["AlertItem"];

/** Start of the text of an item. Kinds without one, such as assets, begin with the name of the item. */
const KINDS: Partial<Record<AlertItem["kind"], string>> = {
  violation: "Violation",
  scan: "Scan",
  scanFailure: "Could not be read:",
  breakGlass: "Sign-in:",
  renewed: "Renewed:",
  recovered: "Resolved:",
  stillFailing: "Still failing:",
  escalated: "Not acknowledged:",
};

/**
 * An item of a notification (the page calls it an alert), in lists of notifications and open alerts. An asset links to its
 * page, a violation to all violations of its check.
 */
export function Item({ item }: { item: AlertItem }) {
  const { kind, expiresOn, since } = item;
  return (
    <>
      {KINDS[kind]} <ItemName item={item} />
      {expiresOn && (
        <>
          , expires <Instant at={expiresOn} />
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

/** Returns the name of an item as text, for buttons and dialogs. */
export function itemTitle({ kind, id, credentialTitle }: AlertItem): string {
  if (credentialTitle !== null) return isolated(credentialTitle);
  if (kind !== "violation") return titleOfId(id);
  const [check, ...resource] = id.split(".");
  return `${check} of ${titleOfId(resource.join("."))}`;
}

/** The name of an item, as a link if the item has a page. */
function ItemName({ item }: { item: AlertItem }) {
  const { kind, id, credentialTitle } = item;
  const name = itemTitle(item);
  if (kind === "asset") return <Link href={createHref(`/inventory/${encodeURIComponent(id)}`)}>{name}</Link>;
  if (kind !== "violation") return name;
  // A violation's id is the check's id and the resource's id.
  const [check = "", ...resource] = id.split(".");
  return (
    <>
      of <Link href={createHref("/compliance", { check })}>{check}</Link> by{" "}
      {isAssetId(resource) ? (
        <Link href={createHref(`/inventory/${encodeURIComponent(resource.join("."))}`)}>
          {titleOfId(resource.join("."), credentialTitle ?? "a credential of an application")}
        </Link>
      ) : (
        resource.join(".")
      )}
    </>
  );
}

/** Returns whether the parts of a resource's ID name an asset, which has a page. The ID of a vault is one part. */
const isAssetId = ([first, second, ...rest]: string[]): boolean =>
  first === "entra" || first === "b2c"
    ? rest.length >= 2
    : rest.length > 0 && ["secret", "key", "certificate"].includes(second ?? "");
