/* Writes little stories to stdout: stories [BYTES [SEED]], about BYTES (2,000,000) of text, the same text every time.
 *
 * Each story draws its people, things and places once and then tells a plot about them, so that whoever learns to continue it has to
 * remember who is who: the ball that is blue in the first sentence is blue in the last. A story is one line a paragraph, and an empty
 * line ends it.
 *
 * Plots are templates. [a|b|c] takes one of the alternatives, which may nest and be empty. {x} is filled in; a capital letter in it
 * makes the first letter of the text a capital:
 *   {hero} {friend}              names;  {h.he} {h.him} {h.his} and {f.he} … their pronouns;  {h.kind} {f.kind} "little fox"
 *   {thing} {a.thing}            "red ball", "a red ball";  {gift} {a.gift} another one;  {food} {a.food};  {skill} "swim"
 *   {old.kind}                   a third one: "the old {old.kind}"
 *   {home} {near} {far} {last}   places with their preposition: "in the garden", "by the river" */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct person { const char *name, *he, *him, *his; };
struct story {
    struct person hero, friend;
    const char *hero_trait, *hero_kind, *friend_trait, *friend_kind, *old_kind;
    const char *colour, *thing, *gift_colour, *gift, *food, *skill, *home, *near, *far, *last;
};

static const char *const girls[] = {"Mia", "Lily", "Anna", "Rosa", "Nora", "Ella", "Daisy", "Wren", "Hazel", "Ivy", "Pippa", "Molly"};
static const char *const boys[] = {"Tom", "Ben", "Max", "Oscar", "Finn", "Leo", "Hugo", "Jasper", "Otto", "Sam", "Toby", "Rufus"};
static const char *const kinds[] = {"fox", "rabbit", "bear", "mouse", "duck", "hedgehog", "owl", "squirrel", "badger", "frog", "cat", "otter"};
static const char *const traits[] = {"little", "young", "kind", "brave", "quiet", "cheerful", "curious", "clever", "shy", "old"};
static const char *const colours[] = {"red", "blue", "green", "yellow", "white", "silver", "golden", "old", "orange", "tiny", "shiny", "brown"};
static const char *const things[] = {"ball", "hat", "kite", "drum", "boat", "key", "cup", "bell", "scarf", "basket", "lamp", "umbrella", "book",
                                     "button", "ring", "whistle", "blanket", "spoon"};
static const char *const foods[] = {"apple", "pear", "cake", "loaf of bread", "pie", "carrot", "bowl of soup", "jar of honey", "plum", "biscuit"};
static const char *const skills[] = {"swim", "whistle", "dance", "climb", "sing", "skate", "read", "draw", "paint", "cook"};
static const char *const homes[] = {"in a small house", "under an oak tree", "in a village", "near the woods", "on a farm", "by the sea",
                                    "in a valley", "on a green hill"};
static const char *const places[] = {"in the garden", "by the river", "under the bridge", "in the barn", "behind the school", "on the hill",
                                     "in the forest", "near the well", "at the market", "by the old mill", "under the bed", "in the kitchen",
                                     "beside the pond", "at the top of the stairs"};

static const char *const openings[] = {
    "[Once upon a time|One day|Long ago], there was {a.h.kind} [named|called] {hero}. {Hero} lived {home} [with {h.his} mother|with "
    "{h.his} family|all alone], and {h.his} best friend was {a.f.kind} [named|called] {friend}.\n",
    "{Hero} was {a.h.kind} who lived {home}. {H.he} had a good friend, {a.f.kind} [named|called] {friend}.\n",
    "[There once was|Once there was] {a.h.kind} [whose name was|named] {hero}. Every [day|morning], {hero} played with {friend}, "
    "{a.f.kind} who lived {home} too.\n",
};

static const char *const plots[] = {
    /* lost and found */
    "{Hero} had {a.thing}, and {h.he} [loved it very much|took it everywhere]. [But one morning|Then one day], the {thing} was gone! \"[Oh no|Oh "
    "dear]!\" [said|cried] {hero}. \"Where is my {thing}?\"\n{H.he} looked {near}, but the {thing} was not there. {H.he} looked {far}, but "
    "it was not there either. {Hero} [was very sad|sat down and began to cry].\n[Just then|Soon], {friend} came by. \"Why are you [sad|crying], "
    "{hero}?\" asked {friend}. \"I lost my {thing},\" said {hero}. \"[Do not worry|Do not be sad],\" said {friend}. \"[I will help you|We will "
    "look for it together].\"\n[The two friends|{Hero} and {friend}] looked and looked. At last, {friend} looked {last}. \"[Look|Here it is], "
    "{hero}!\" {f.he} [called|shouted]. \"I found your {thing}!\" {Hero} was so happy that {h.he} hugged {friend}. \"Thank you, {friend},\" "
    "{h.he} said. [And from that day on, {hero} took good care of the {thing}|After that, {hero} never lost the {thing} again].\n",
    /* sharing */
    "One [sunny|cold|rainy] day, {hero} went for a walk. {H.he} had {a.food} in {h.his} bag. {Near}, {h.he} met {friend}. {Friend} looked "
    "[sad|tired]. \"What is wrong, {friend}?\" asked {hero}. \"I am so hungry,\" said {friend}. \"I have had nothing to eat all day.\"\n{Hero} "
    "looked at the {food}. {H.he} was hungry too. But {h.he} [thought of {h.his} friend|wanted to be kind]. \"Here, {friend},\" said {hero}, "
    "\"we can share my {food}.\" So they sat down {near} and ate the {food} together. It was [very good|the best {food} in the world].\n\"Thank "
    "you, {hero},\" said {friend}. \"You are a good friend.\" Then {friend} gave {hero} {a.thing}. \"This is for you,\" {f.he} said. {Hero} "
    "smiled and took the {thing} home. [And they were friends forever|{H.he} kept the {thing} for a very long time].\n",
    /* learning */
    "{Hero} wanted to {skill}, but {h.he} did not know how. {H.he} tried {near}, but it [was too hard|did not go well]. \"I will never {skill},\" "
    "{h.he} said.\n{Friend} could {skill} very well. \"I can teach you to {skill}, {hero},\" said {friend}. \"[It is not hard|You only have to "
    "try].\" So every day they went {far}, and {friend} showed {hero} how to {skill}. On the first day, {hero} [fell down|got it wrong]. On the "
    "second day, it was a little better. And on the third day, {hero} could {skill}!\n\"I can {skill}!\" [cried|shouted] {hero}. {Friend} was "
    "very proud. {F.he} gave {hero} {a.thing}. \"This is for you,\" {f.he} said, \"because you did not give up.\" {Hero} took the {thing} and "
    "[hugged {friend}|smiled]. [Now they {skill} together every day|After that, {hero} was never afraid to try].\n",
    /* trade */
    "{Hero} had {a.thing}, and {friend} had {a.gift}. One day they met {near}. \"What a [nice|lovely] {thing}!\" said {friend}. \"And what a "
    "[nice|lovely] {gift}!\" said {hero}. They looked at each other and [laughed|smiled].\n\"Would you like to trade?\" asked {friend}. {Hero} "
    "thought about it. {H.he} loved {h.his} {thing}, but {h.he} wanted the {gift} very much. \"[Yes|All right],\" {h.he} said. So {hero} gave "
    "{friend} the {thing}, and {friend} gave {hero} the {gift}.\n{Hero} played with the {gift} {far} all day long. But in the evening {h.he} missed "
    "{h.his} {thing}. {H.he} went to {friend}. \"I miss my {thing},\" {h.he} said. \"And I miss my {gift},\" said {friend}. They both laughed. "
    "{Hero} gave back the {gift}, and {friend} gave back the {thing}. \"[Let us share|We can share them],\" said {friend}. [And that is what they "
    "did|And so they did].\n",
    /* the storm */
    "One [evening|night], a big storm came. The wind [was loud|howled], and the rain fell hard. {Hero} was afraid. {H.he} hid {near} with "
    "{h.his} {thing}. \"I do not like the storm,\" {h.he} whispered.\nThen there was a knock at the door. It was {friend}! {F.he} was "
    "[cold and wet|wet from head to toe]. \"May I come in, {hero}?\" asked {friend}. \"My house is full of water.\" \"Of course,\" said "
    "{hero}. {H.he} gave {friend} a [towel|warm blanket] and {a.food}.\n{Hero} and {friend} sat together and told stories. {Hero} showed {friend} "
    "the {thing}, and {friend} [laughed|smiled]. Soon {hero} was not afraid any more. In the morning the sun came out, and the storm was "
    "over. \"Thank you, {hero},\" said {friend}. \"[You are very brave|You were brave].\" [And {hero} felt brave, too|"
     "{Hero} held the {thing} and smiled].\n",
    /* the box */
    "One day, {hero} and {friend} were playing {near}. {Hero} saw something in the grass. \"[Look|Come and see], {friend}!\" {h.he} "
    "[called|said]. It was an old box. {Friend} tried to open it, but {f.he} could not. \"We need a key,\" {f.he} said.\nThey looked for the key "
    "{far}. They looked {last}. There, under a stone, was the key! {Hero} ran back and opened the box. Inside the box was {a.thing}.\n\"[It is "
    "beautiful|How wonderful]!\" said {friend}. \"But whose {thing} is it?\" {Hero} thought for a while. "
     "\"[It belongs to the old {old.kind}|I think it "
    "belongs to the old {old.kind}],\" {h.he} said. So they took the {thing} to the old {old.kind}. The old {old.kind} was very happy to see the "
    "{thing} again, and gave {hero} and {friend} {a.food}. They ate the {food} together {near}.\n",
    /* the present */
    "It was the birthday of {friend}. {Hero} wanted to give {f.him} something special. {H.he} went to the market and saw {a.gift}, but {h.he} had no "
    "money. \"I can give you {a.thing} for it,\" said {hero} to the old {old.kind} who sold it. The old {old.kind} shook his head.\n{Hero} "
    "[was sad|did not give up]. {H.he} worked for the old {old.kind} all day. {H.he} swept the floor and carried the [wood|water]. In the evening, "
    "the old {old.kind} said, \"You worked hard, {hero}. Take the {gift}. It is yours.\"\n{Hero} ran to {friend}. {Friend} was {near}. \"Happy "
    "birthday, {friend}!\" said {hero}, and gave {f.him} the {gift}. \"[{A.gift}|Oh, {a.gift}]!\" [cried|said] {friend}. \"It is just what I "
    "wanted.\" {F.he} [hugged {hero}|danced with joy], and they [shared {a.food}|ate {a.food} together].\n",
    /* the race */
    "One morning, {friend} said, \"I can run faster than you, {hero}!\" \"[No, you cannot|We will see about that],\" said {hero}. So they had a "
    "race. The first one to find the {thing} that was {far} would win.\n{Friend} was very fast. Soon {f.he} was far ahead. But {near}, {f.he} fell "
    "and hurt {f.his} foot. \"[Ouch|Help]!\" cried {friend}. {Hero} heard {f.him}. {H.he} could win the race now. But {h.he} stopped and helped "
    "{friend} to get up.\n\"You could have won,\" said {friend}. "
     "\"[A friend is better than a prize|I like you more than I like to win],\" said {hero}. "
    "They walked on together, slowly, and found the {thing} {far}. \"[You should have it|It is yours], {hero},\" said {friend}. But {hero} said, "
    "\"The {thing} is for both of us.\" [And so it was|And they were both happy].\n",
};

static const char *const endings[] = {
    "", "", "[They lived happily ever after.|And that was a very good day.|Then it was time to go home.]\n",
    "When {hero} went to bed that night, {h.he} [thought of {friend}|dreamed of {friend}] and smiled.\n",
};

static uint64_t state;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t below)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define PICK(a) (a)[draw(COUNT(a))]

static struct person draw_person(void)
{
    if (draw(2)) return (struct person){PICK(girls), "she", "her", "her"};
    return (struct person){PICK(boys), "he", "him", "his"};
}

/* One of `list` that is neither of the two. */
static const char *draw_other(const char *const *list, size_t n, const char *a, const char *b)
{
    const char *s;
    do s = list[draw(n)];
    while (s == a || s == b);
    return s;
}

static struct story draw_story(void)
{
    struct story s = {.hero = draw_person()};
    do s.friend = draw_person();
    while (strcmp(s.friend.name, s.hero.name) == 0);
    s.hero_kind = PICK(kinds);
    s.friend_kind = draw_other(kinds, COUNT(kinds), s.hero_kind, NULL);
    s.old_kind = draw_other(kinds, COUNT(kinds), s.hero_kind, s.friend_kind);
    s.hero_trait = PICK(traits);
    s.friend_trait = PICK(traits);
    s.colour = PICK(colours);
    s.thing = PICK(things);
    s.gift_colour = draw_other(colours, COUNT(colours), s.colour, NULL);
    s.gift = draw_other(things, COUNT(things), s.thing, NULL);
    s.food = PICK(foods);
    s.skill = PICK(skills);
    s.home = PICK(homes);
    s.near = PICK(places);
    s.far = draw_other(places, COUNT(places), s.near, NULL);
    s.last = draw_other(places, COUNT(places), s.near, s.far);
    return s;
}

struct text { char p[8192]; size_t n; };

static void put(struct text *t, const char *s, size_t n)
{
    if (n > sizeof t->p - t->n) abort(); /* a template longer than a story may be */
    memcpy(t->p + t->n, s, n);
    t->n += n;
}

static const char *pronoun(const struct person *p, const char *which)
{
    return strcmp(which, "he") == 0 ? p->he : strcmp(which, "him") == 0 ? p->him : p->his;
}

/* The text of a slot whose name is in lower case, into `out`. */
static void fill(const struct story *s, const char *name, char *out, size_t room)
{
    const char *article = "", *adjective = "", *noun = "", *space = "";
    int with_article = strncmp(name, "a.", 2) == 0;
    if (with_article) name += 2;
    if (strcmp(name, "thing") == 0) adjective = s->colour, noun = s->thing;
    else if (strcmp(name, "gift") == 0) adjective = s->gift_colour, noun = s->gift;
    else if (strcmp(name, "food") == 0) noun = s->food;
    else if (strcmp(name, "skill") == 0) noun = s->skill;
    else if (strcmp(name, "hero") == 0) noun = s->hero.name;
    else if (strcmp(name, "friend") == 0) noun = s->friend.name;
    else if (strcmp(name, "home") == 0) noun = s->home;
    else if (strcmp(name, "near") == 0) noun = s->near;
    else if (strcmp(name, "far") == 0) noun = s->far;
    else if (strcmp(name, "last") == 0) noun = s->last;
    else if (strcmp(name, "h.kind") == 0) adjective = s->hero_trait, noun = s->hero_kind;
    else if (strcmp(name, "f.kind") == 0) adjective = s->friend_trait, noun = s->friend_kind;
    else if (strcmp(name, "old.kind") == 0) noun = s->old_kind;
    else if (strncmp(name, "h.", 2) == 0) noun = pronoun(&s->hero, name + 2);
    else if (strncmp(name, "f.", 2) == 0) noun = pronoun(&s->friend, name + 2);
    else abort(); /* a slot that no template may name */
    if (*adjective) space = " ";
    if (with_article) article = strchr("aeiou", *adjective ? *adjective : *noun) ? "an " : "a ";
    snprintf(out, room, "%s%s%s%s", article, adjective, space, noun);
}

/* Appends template s up to the closing bracket or bar at its level, or its end; returns what follows. Appends nothing when `silent`. */
static const char *tell(struct text *t, const struct story *story, const char *s, int silent)
{
    while (*s && *s != '|' && *s != ']') {
        if (*s == '[') {
            const char *scan = s + 1;
            size_t n = 1, chosen;
            for (;; n++) {
                scan = tell(t, story, scan, 1);
                if (*scan++ != '|') break;
            }
            chosen = silent ? 0 : draw(n);
            scan = s + 1;
            for (size_t i = 0; i < n; i++) scan = tell(t, story, scan, silent || i != chosen) + 1;
            s = scan;
        } else if (*s == '{') {
            char name[32], text[64];
            size_t n = 0;
            int capital = isupper((unsigned char)s[1]);
            for (s++; *s != '}'; s++) name[n++] = (char)tolower((unsigned char)*s);
            name[n] = '\0';
            s++;
            fill(story, name, text, sizeof text);
            if (capital) text[0] = (char)toupper((unsigned char)text[0]);
            if (!silent) put(t, text, strlen(text));
        } else {
            if (!silent) put(t, s, 1);
            s++;
        }
    }
    return s;
}

int main(int argc, char **argv)
{
    unsigned long long bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000, written = 0;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    while (written < bytes) {
        struct text t = {.n = 0};
        struct story s = draw_story();
        tell(&t, &s, PICK(openings), 0);
        tell(&t, &s, PICK(plots), 0);
        tell(&t, &s, PICK(endings), 0);
        put(&t, "\n", 1);
        if (fwrite(t.p, 1, t.n, stdout) != t.n) return 74;
        written += t.n;
    }
    return fflush(stdout) == 0 ? 0 : 74;
}
