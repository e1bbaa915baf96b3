/**
 * The charts that the page uses. charts.tsx loads this file when needed, and the bundle contains no other charts of the
 * package.
 */
export { LineChart, VerticalStackedBarChart } from "@fluentui/react-charts";
