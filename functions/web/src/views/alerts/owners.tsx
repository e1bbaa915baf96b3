import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { LongField } from "../../parts/fields.tsx";
import { typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";

type Owner = Schemas["AlertOwner"];

/** The most that one page holds. */
const PAGE = 1_000;

/** Whom a mail goes to where a tag names an owner: the administrators' table. */
export function Owners() {
  // The table is put as a whole, so all of it is read: at most two pages.
  const owners = api.useQuery("get", "/alerts/owners", { params: { query: { limit: PAGE } } });
  const isLong = (owners.data?.total ?? 0) > PAGE;
  const others = api.useQuery(
    "get",
    "/alerts/owners",
    { params: { query: { limit: PAGE, offset: PAGE } } },
    { enabled: isLong },
  );
  const rest = others.data?.items ?? [];
  return (
    <Answer of={owners}>
      {({ items, updatedAt, updatedBy, etag }) => (
        <>
          <Text>
            A mail about what a tag names the owner of goes to the owner, and the rule's addresses get the rest.
            {updatedAt && (
              <>
                {" "}
                Changed by {updatedBy} <Instant at={updatedAt} relative />.
              </>
            )}
          </Text>
          <div>
            {(!isLong || others.isSuccess) && (
              <Operate
                operation="replaceAlertOwners"
                title="Change the owners"
                action="Save"
                submit={(form, replace) =>
                  replace({
                    params: { header: { "If-Match": etag } },
                    body: { owners: ownersOf(typed(form, "owners")) },
                  })
                }
              >
                <LongField
                  name="owners"
                  label="Owners"
                  hint="A line each: the owner as tags write it, a colon, and the e-mail address."
                  rows={10}
                  defaultValue={[...items, ...rest].map(({ owner, address }) => `${owner}: ${address}`).join("\n")}
                />
              </Operate>
            )}
          </div>
          {items.length === 0 ? (
            <Text>No owner is known.</Text>
          ) : (
            <ul>
              {[...items, ...rest].map(({ owner, address }) => (
                <li key={owner}>
                  {owner}: {address}
                </li>
              ))}
            </ul>
          )}
        </>
      )}
    </Answer>
  );
}

/** The address is what follows the last colon, since an owner's name may have some. */
const ownersOf = (text: string): Owner[] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const at = line.lastIndexOf(":");
      return { owner: line.slice(0, Math.max(0, at)).trim(), address: line.slice(at + 1).trim() };
    });
