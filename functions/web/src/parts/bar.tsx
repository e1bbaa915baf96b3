import { makeStyles, tokens } from "@fluentui/react-components";

const useStyles = makeStyles({
  track: {
    height: "8px",
    borderRadius: tokens.borderRadiusMedium,
    overflow: "hidden",
    backgroundColor: tokens.colorNeutralBackground5,
  },
  value: { height: "100%" },
});

const COLORS = {
  neutral: tokens.colorBrandBackground,
  good: tokens.colorPaletteGreenBackground3,
  medium: tokens.colorPaletteMarigoldBorderActive,
  bad: tokens.colorPaletteRedBackground3,
};
export type BarColor = keyof typeof COLORS;

/**
 * A bar that shows a share, below a text with the same number. Hidden from screen readers, which read the text.
 *
 * @param props.share - Length of the bar, 0 to 1.
 */
export function Bar({ share, color = "neutral" }: { share: number; color?: BarColor }) {
  const styles = useStyles();
  return (
    <div className={styles.track} aria-hidden>
      <div className={styles.value} style={{ width: `${share * 100}%`, backgroundColor: COLORS[color] }} />
    </div>
  );
}
