import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Item } from "./item.tsx";

/** What a rule would tell now, and when next. */
export function Preview({ of: preview }: { of: Schemas["AlertPreview"] }) {
  const { total, totalAtLeast = 0, items, isFirst, evaluatedAt, next } = preview;
  const count = total ?? totalAtLeast;
  return (
    <>
      <Text block>
        {count === 0
          ? "It would tell of nothing now."
          : `It would tell of ${total === null ? "at least " : ""}${count.toLocaleString()} now${isFirst ? ", at its first evaluation" : ""}:`}
      </Text>
      <ul>
        {items.slice(0, SHOWN).map((item) => (
          <li key={`${item.kind} ${item.id}`}>
            <Item item={item} />
          </li>
        ))}
        {count > SHOWN && <li>and {(count - SHOWN).toLocaleString()} more</li>}
      </ul>
      <Text block>
        {evaluatedAt === null ? (
          "It is switched off."
        ) : (
          <>
            It is evaluated next <Instant at={evaluatedAt} relative />.
          </>
        )}{" "}
        {next && (
          <>
            The next to come: <Item item={next.item} />, which crosses its threshold <Instant at={next.at} relative />.
          </>
        )}
      </Text>
    </>
  );
}

const SHOWN = 10;
