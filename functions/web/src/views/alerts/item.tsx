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
  const { check, resourceId } = violationOf(id);
  return `${check} of ${titleOfId(resourceId)}`;
}

/** The name of an item, as a link if the item has a page. */
function ItemName({ item }: { item: AlertItem }) {
  const { kind, id, credentialTitle } = item;
  if (kind === "asset") return <Link href={createHref(`/inventory/${encodeURIComponent(id)}`)}>{itemTitle(item)}</Link>;
  if (kind !== "violation") return itemTitle(item);
  const { check, resourceId } = violationOf(id);
  return (
    <>
      of <Link href={createHref("/compliance", { check })}>{check}</Link> by{" "}
      {isAssetId(resourceId) ? (
        <Link href={createHref(`/inventory/${encodeURIComponent(resourceId)}`)}>
          {titleOfId(resourceId, credentialTitle ?? "a credential of an application")}
        </Link>
      ) : (
        resourceId
      )}
    </>
  );
}

/** Returns the check and the resource of a violation, whose ID is `<check>.<resource ID>`. */
function violationOf(id: string): { check: string; resourceId: string } {
  const [check = "", ...resource] = id.split(".");
  return { check, resourceId: resource.join(".") };
}

/** Returns whether a resource's ID is that of an asset, which has a page. The ID of a vault is its name, without dots. */
function isAssetId(resourceId: string): boolean {
  const [first, second = "", ...rest] = resourceId.split(".");
  return first === "entra" || first === "b2c"
    ? rest.length >= 2
    : rest.length > 0 && ["secret", "key", "certificate"].includes(second);
}
