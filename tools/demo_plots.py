"""The plots of the demo model's stories: each branches, and most sentences have several wordings."""

from demo_story import LESSONS, SKIES, Story


# Parts that several plots share.

def opening(s: Story) -> None:
    s.say("Once upon a time, there was {hero_a} named {hero}.",
          "Once upon a time there lived {hero_a}. {hero_His} name was {hero}.",
          "There was once {hero_a} called {hero}, who lived near {place}.",
          "{hero} was {hero_a} who lived near {place}.",
          "In a house near {place} lived {hero_a} named {hero}.",
          "One day, {hero_a} named {hero} went to {place}.",
          "Long ago, near {place}, there lived {hero_a} named {hero}.")
    s.maybe(0.4, "{hero} lived with {hero_his} {elder} in a small house.",
            "Everyone in the village knew {hero}.",
            "{hero} had a warm bed, a window, and a lot of questions.",
            "{hero} liked to play outside more than anything else.",
            "Every morning, {hero} looked out of the window and smiled.")


def sky(s: Story, chance: float = 0.7) -> None:
    s.maybe(chance, *SKIES)


def go_out(s: Story) -> None:
    s.say("One morning, {hero} went to {place}.", "One day, {hero} walked to {place}.",
          "One afternoon, {hero} ran all the way to {place}.", "That day, {hero} wanted to visit {place}.",
          "After breakfast, {hero} put on {hero_his} boots and went to {place}.")
    sky(s)
    s.maybe(0.35, "On the way, {hero_he} saw {seen}.", "{hero} stopped to look at {seen}.",
            '"Look at that!" said {hero}. It was {seen}.')


def meet_friend(s: Story) -> None:
    s.say("Then {hero_he} met {friend_a} named {friend}.",
          "Just then, {friend_a} came along. {friend_His} name was {friend}.",
          "{hero_He} saw {friend_a} sitting {around}. It was {friend}.",
          "Soon {friend_a} called {friend} came down the path.")


def snack(s: Story, chance: float = 0.35) -> None:
    s.maybe(chance, "They sat down and shared {food}.", "{friend} had {food}, and gave half of it to {hero}.",
            "{hero} was hungry, so {friend} gave {hero_him} {food}.")


def ending(s: Story, *lessons: str) -> None:
    """`lessons`: keys of LESSONS that fit the plot."""
    s.words["lesson"] = s.rng.choice(LESSONS[s.rng.choice(lessons)])
    together = s.has_met_friend()
    s.paragraph()
    s.maybe(0.5, "When the sun went down, {hero} went home.", "That night, the stars were very bright.",
            "At home, {hero} told {hero_his} {elder} the whole story.", "It was time to go home.",
            *["In the evening, {hero} and {friend} walked home together."] * together)
    s.maybe(0.25, '"What a day!" said {hero}.', '"I am proud of you," said {hero_his} {elder}.',
            *['"Can we do it again tomorrow?" asked {friend}.'] * together)
    s.say("{hero} was very happy.", "{hero} went to bed with a smile.", "And {hero} learned that {lesson}.",
          "{hero} never forgot that day.", "They lived happily ever after.", "{hero} knew now that {lesson}.",
          "And that was the end of a good day.", "And so {hero} found out that {lesson}.",
          *["From that day on, {hero} and {friend} were the best of friends.",
            "From then on, {hero} and {friend} met {around} every day."] * together)


# The plots.

def lost_thing(s: Story) -> None:
    opening(s)
    s.say("{hero_He} had {a_thing} that {hero_he} loved very much.", "{hero_He} took {hero_his} {thing} everywhere.",
          "{hero_His} {elder} had given {hero_him} {a_thing}.")
    go_out(s)
    s.paragraph()
    s.say("But when {hero} looked around, the {thing} was gone.",
          "Then something was wrong. The {thing} was not there!",
          "After a while, {hero} saw that {hero_his} {thing} was missing.")
    s.say('"Oh no! Where is my {toy}?" cried {hero}.', "{hero} felt very sad.", '"I must find it," said {hero}.',
          "{hero} started to cry.")
    s.say("{hero_He} looked {spot}, but it was not there.", "First {hero_he} looked {spot}. Nothing.",
          "{hero_He} searched {spot}, but {hero_he} only found {seen}.")
    s.paragraph()
    meet_friend(s)
    s.say('"Why are you so sad?" asked {friend}.', '"What is wrong?" asked {friend}.',
          '"Can I help you?" asked {friend}.')
    s.say('"I lost my {thing}," said {hero}.', '"I cannot find my {thing}," {hero} answered.')
    s.say('"Do not worry. We will look for it together," said {friend}.', '"Let us look {spot2}," said {friend}.',
          '"Two can see more than one," said {friend}.')
    if s.chance(0.5):
        s.say("They looked {spot2}, but they did not find it.", "It was not {spot2}.")
        s.say("They did not give up.", '"Do not give up," said {friend}.', "{hero} was tired, but they went on.")
    s.paragraph()
    if s.chance(0.75):
        s.say("At last, they found the {thing} {spot3}!", "Then {friend} looked {spot3}, and there was the {thing}!",
              '"Here it is!" called {friend}. The {thing} was {spot3}.')
        s.say('"Thank you, {friend}!" said {hero}.', "{hero} hugged {friend} and laughed.",
              '"You are a true friend," said {hero}.')
    else:
        s.say("They looked until it was dark, but the {thing} did not come back.",
              "The {thing} was gone, and nobody ever found it.")
        s.say("{friend} made a new {toy} for {hero}, and it was even better.",
              '"You can have my {toy}," said {friend}. "I want you to be happy."',
              "But {hero} had found a new friend, and that was worth more than a {toy}.")
    ending(s, "friend", "help")


def new_friend(s: Story) -> None:
    opening(s)
    s.say("{hero} was lonely, because {hero_he} had nobody to play with.", "{hero} had no friends yet.",
          "{hero} had just moved there and did not know anyone.")
    go_out(s)
    s.paragraph()
    meet_friend(s)
    s.say("{friend} was playing with {a_thing}.", "{friend} was looking for someone to play with too.",
          "{friend} was sitting all alone.")
    if s.chance(0.5):
        s.say("{hero} was too shy to say hello.", "{hero} wanted to speak, but no word came out.")
        s.say("But {friend} smiled and waved.", "Then {hero_he} took a deep breath and walked up to {friend}.")
    s.say('"Hello! My name is {friend}. What is your name?"', '"Hello, I am {friend}," said {friend}.')
    s.say('"I am {hero}," said {hero}.', '"My name is {hero}," {hero_he} said softly.')
    s.say('"Do you want to play {game} with me?" asked {friend}.', '"Let us play {game}!" said {friend}.')
    s.paragraph()
    s.say("They played {game} {around} until they were out of breath.", "They played {game} all day long.",
          "{hero} was very good at it, and they both laughed.")
    snack(s, 0.6)
    s.maybe(0.5, '"You are funny," said {hero}.', '"I am glad that I met you," said {hero}.',
            '"Will you come back tomorrow?" asked {hero}. "Of course!" said {friend}.')
    ending(s, "friend")


def storm(s: Story) -> None:
    opening(s)
    s.say("{hero} had a good friend, {friend_a} named {friend}.",
          "{hero_His} best friend was {friend_a} named {friend}.")
    s.say("One day, the two friends went to {place} together.", "One morning, {hero} and {friend} walked to {place}.")
    sky(s)
    s.say("They played {game} {around}.", "They looked at {seen}.", "They flew {a_thing} in the wind."
          if s.words["toy"] == "kite" else "They had {a_thing} with them.")
    s.paragraph()
    s.say("Suddenly, the sky became dark.", "Then big black clouds came over the hill.",
          "All at once, the wind grew strong.")
    s.say("It began to rain.", "There was a flash and a loud boom.", "Heavy rain fell on their heads.")
    s.say('"I am scared," said {hero}.', '"We must find a dry place!" cried {friend}.', "{hero} held on to {friend}.")
    s.paragraph()
    s.say("They ran and hid {spot}.", "They found a small cave and went inside.", "They hid under a big tree.",
          "They found an old hut with an open door.")
    s.say('"It is only rain," said {friend}. "It will stop soon."', "To feel better, they sang a song together.",
          "{friend} told a funny story, and {hero} forgot to be afraid.", "They counted to one hundred, very slowly.")
    snack(s, 0.5)
    s.paragraph()
    s.say("After some time, the rain stopped.", "At last, the storm went away.", "Then it was quiet again.")
    s.say("A big rainbow stood over {place}.", "The sun came back, and everything was shining.",
          "They jumped in every puddle on the way home.", "The air smelled fresh and clean.")
    ending(s, "friend", "brave")


def broken_thing(s: Story) -> None:
    s.with_breakable_thing()
    opening(s)
    s.say("{hero_His} favorite thing was {a_thing}.", "For {hero_his} birthday, {hero_he} got {a_thing}.")
    s.say("One day, {hero} played with it in {place}."
          if s.words["place"] not in ("the beach", "the lake", "the hill", "the river", "the farm", "the old mill")
          else "One day, {hero} took it to {place}.",
          "{hero} showed it to {friend_a} named {friend}, who lived next door.")
    s.paragraph()
    s.say("But then {hero} fell, and the {toy} broke.", "Then the {toy} hit a stone and broke in two.",
          "Crack! The {toy} was broken.")
    s.say("{hero} wanted to cry.", '"Oh no, my {toy}!" cried {hero}.', "{hero} was angry and sad at the same time.")
    if s.chance(0.6):
        s.say("{hero_He} tried to fix it with glue, but it did not hold.",
              "{hero_He} tried to tie it with a string, but it fell apart again.")
    s.paragraph()
    s.say("{hero} went to {hero_his} {elder} for help.", "{hero_His} {elder} saw {hero_his} sad face.")
    s.say('"Can you fix it?" asked {hero}.', '"It is broken," said {hero}.')
    s.say('"We can fix it together," said {hero_his} {elder}.',
          '"Not alone. But you can help me," said {hero_his} {elder}.',
          '"Bring me some wood and a nail," said {hero_his} {elder}.')
    s.say("They worked all afternoon.", "They cut, and glued, and painted.",
          "It took a long time, but {hero} did not mind.")
    s.say("In the end, the {toy} was better than before.", "Soon the {thing} was as good as new.",
          "Now the {toy} had a small line where it had been broken, and {hero} liked it even more.")
    s.maybe(0.6, '"Thank you!" said {hero}, and gave {hero_his} {elder} a big hug.',
            '"Next time, I will be careful," said {hero}.')
    ending(s, "help", "time")


def fear(s: Story) -> None:
    opening(s)
    s.say("{hero} was afraid of {fear}.", "There was only one problem. {hero} was afraid of {fear}.")
    s.maybe(0.5, "The others laughed about it.", "{hero_He} did not tell anyone.",
            '"Everyone is afraid of something," said {hero_his} {elder}.')
    go_out(s)
    s.paragraph()
    s.say("Suddenly, {hero_he} heard a small voice. \"Help! Help!\"", "Then someone called for help.",
          "Then {hero_he} heard somebody cry.")
    s.say("It was {friend}, {friend_a}.", "It was {friend_a} named {friend}.")
    s.say("{friend} had fallen into a hole.", "{friend_His} foot was stuck between two stones.",
          "{friend} was up in a tree and could not come down.")
    s.say("{hero} thought of {fear}, and {hero_his} knees began to shake.", "{hero} wanted to run away.",
          "{hero_His} heart was beating fast.")
    s.say('"I am coming!" called {hero}.', "But {friend} needed help, and nobody else was there.",
          "{hero_He} took a deep breath.")
    s.paragraph()
    s.say("Step by step, {hero} came closer.",
          "{hero} closed {hero_his} eyes for a moment, and then {hero_he} went on.")
    s.say("{hero_He} found a long stick, and {friend} held on to it.",
          "{hero_He} found a rope and pulled with all {hero_his} strength.", "{hero_He} gave {friend} {hero_his} hand.")
    s.say("At last, {friend} was free.", "And then {friend} was safe.")
    s.say('"You are so brave!" said {friend}.', '"You saved me! Were you not afraid?" asked {friend}.')
    s.say('"I was afraid," said {hero}, "but I did it."', '"A little," said {hero} with a smile.',
          "{hero} was surprised. {hero_He} had forgotten about {fear}.")
    ending(s, "brave", "help")


def race(s: Story) -> None:
    opening(s)
    s.say("{hero} was very fast.", "{hero} loved to run.", "{hero} always wanted to win.")
    inside = s.words["place"] in ("the forest", "the park", "the village", "the garden", "the meadow", "the market")
    s.say("One day, there was a big race in {place}." if inside else "One day, there was a big race near {place}.",
          "Every year, there was a race to {place}.")
    sky(s)
    s.say("{friend}, {friend_a}, wanted to run too.", "The other runner was {friend_a} named {friend}.")
    s.maybe(0.5, '"I will win!" said {hero}.', '"May the best one win," said {friend}.',
            "The prize was {a_thing}.")
    s.paragraph()
    s.say("One, two, three, go!", "The bell rang, and they ran.", "{hero_His} {elder} counted to three.")
    s.say("At first, {hero} was in front.", "{friend} was in front, and {hero} was right behind.",
          "They ran side by side.")
    s.say("But then {friend} fell over a root and hurt {friend_his} leg.",
          "Then {friend} slipped on the wet grass and fell.")
    s.paragraph()
    if s.chance(0.7):
        s.say("{hero} looked at the finish line. Then {hero_he} looked back.",
              "{hero} could have won, but {hero_he} stopped.")
        s.say('"Are you hurt?" asked {hero}.', '"Come, I will help you," said {hero}.')
        s.say("Slowly, they walked to the end together.",
              "{hero} put an arm around {friend}, and they crossed the line together.")
        s.say("Everyone cheered for both of them.", "They were the last, but everyone cheered.",
              "And so there were two winners.")
    else:
        s.say("{hero} ran on and won the race.", "{hero} did not stop, and came first.")
        s.say("But it did not feel good.", "But when {hero_he} saw {friend} on the ground, {hero_he} felt ashamed.")
        s.say('"I am sorry," {hero} said to {friend}. "I should have stopped."',
              "{hero} went back and gave {friend} the prize.")
        s.say('"It is all right," said {friend}. "Next time we run together."',
              "{friend} smiled, and they shook hands.")
    ending(s, "friend", "help")


def birthday(s: Story) -> None:
    opening(s)
    s.say("Today was {hero_his} birthday.", "It was {hero_his} birthday, and {hero_he} woke up early.")
    sky(s, 0.4)
    s.say("But nobody said a word about it.", "But the house was empty.", "{hero_His} {elder} only said good morning.")
    s.say("{hero} went to look for {friend}, {friend_a} who lived next door.",
          "{hero} walked to the house of {friend}, {friend_a}.")
    s.say("{friend} was not at home.", '"I have no time today," said {friend}, and closed the door.',
          "{friend} ran away when {friend_he} saw {hero}.")
    s.say('"They forgot my birthday," thought {hero}.', "{hero} sat down {spot} and felt alone.",
          "A tear ran down {hero_his} face.")
    s.paragraph()
    s.say("In the evening, {hero} came home. It was dark.", "When {hero} opened the door, everything was quiet.")
    s.say('Then the light went on. "Surprise!"', '"Happy birthday!" everyone called at once.')
    s.say("{friend} was there, and {hero_his} {elder}, and all the others.",
          "All {hero_his} friends had been hiding there.")
    s.say("There was a big cake with candles on the table.", "{friend} gave {hero_him} {a_thing}.",
          "{hero_His} {elder} had made a cake, and {friend} had brought {a_thing}.")
    s.maybe(0.6, '"I thought that you forgot me," said {hero}.', '"Make a wish," said {friend}.')
    s.maybe(0.6, '"How could we forget you?" said {friend}.', "{hero} closed {hero_his} eyes and made a wish.")
    ending(s, "friend")


def treasure(s: Story) -> None:
    opening(s)
    s.say("One day, {hero} found an old map {spot}.", "One day, {hero} found a rusty key {spot}.",
          "One day, {hero} found a letter in a bottle.")
    s.say("{hero_He} ran to show it to {friend}, {friend_a}.",
          "{hero_He} had a friend, {friend_a} named {friend}, and told {friend_him} about it.")
    s.say('"It must be a treasure!" said {friend}.', '"Where did you get that?" asked {friend}.',
          '"Let us find out," said {friend}.')
    s.paragraph()
    s.say("They walked to {place}.", "First they had to go to {place}.")
    sky(s, 0.5)
    s.say("They looked {spot2}, but there was only {seen}.",
          "They asked an old man for the way, and he pointed to a hill.", "They had to cross a small stream.",
          "They climbed over a wall and went through a gate.")
    snack(s)
    s.maybe(0.5, '"Maybe there is no treasure," said {hero}.',
            '"I am tired," said {friend}. "Just a little more," said {hero}.')
    s.say("Then they saw a box {spot3}.", "There, {spot3}, they found an old box.")
    s.paragraph()
    s.say("Slowly, they opened it.", "{hero} opened the box with care.", "The box was heavy, but they got it open.")
    if s.chance(0.5):
        s.say("Inside was {a_thing}.", "Inside, there was {a_thing} and an old picture.")
        s.say('"It is beautiful," said {hero}.',
              '"You take it," said {hero}. "No, it is for both of us," said {friend}.')
    else:
        s.say("It was full of gold coins.", "It was empty, but for a small note.", "There were many sweets in it.")
        s.say("They laughed until their bellies hurt.", "They took it home and shared it with everyone.",
              '"The best part was to look for it," said {friend}.')
    ending(s, "share", "friend")


def garden(s: Story) -> None:
    opening(s)
    s.say("One spring day, {hero_his} {elder} gave {hero_him} a seed.", "{hero} found a seed in {hero_his} pocket.",
          "{friend}, {friend_a}, gave {hero} a seed as a present.")
    s.say('"What will it be?" asked {hero}.', '"Put it in the ground and wait," said {hero_his} {elder}.')
    s.say("{hero} made a hole in the ground and put the seed inside.", "{hero} planted it behind the house.")
    s.say("Every day, {hero_he} gave it water.", "{hero_He} watered it every morning and every evening.")
    s.paragraph()
    s.say("But nothing happened.", "A week went by, and there was nothing to see.",
          "Day after day, {hero} saw only brown earth.")
    s.say('"It is not growing!" said {hero}.', "{hero} was about to give up.", '"Maybe it is asleep," said {friend}.')
    s.say('"Good things need time," said {hero_his} {elder}.', "But {hero_he} went on with the water, just in case.")
    s.paragraph()
    s.say("Then, one morning, there was a tiny green leaf.", "At last, something green came out of the earth.")
    s.say("It grew and grew, taller than {hero}.", "Soon it was a strong plant with many leaves.")
    s.say("In summer, it had a big yellow flower.", "In autumn, it was full of sweet red apples.",
          "It was a sunflower, as bright as the sun.", "It was a pumpkin, so big that {hero} could not lift it.")
    s.say("{hero} showed it to everyone.", "{hero} and {friend} danced around it.",
          "They made a great meal and asked all the neighbors to come.")
    ending(s, "time")


def journey(s: Story) -> None:
    opening(s)
    s.say("{hero} wanted to see the world.", "{hero} dreamed of the sea.",
          "{hero} wanted to know what was behind the hills.")
    s.say("So {hero} and {friend}, {friend_a}, built a small boat.",
          "{hero_His} friend {friend}, {friend_a}, had the same dream.",
          "{hero_He} packed {food} and {a_thing} and asked {friend}, {friend_a}, to come along.")
    s.say('"Be home before dark," said {hero_his} {elder}.',
          '"Are you ready?" asked {friend}. "I am ready," said {hero}.', "They left early in the morning.")
    s.paragraph()
    s.say("First, they came to {place}.", "They went past {place} and on and on.")
    sky(s, 0.5)
    s.say("There they saw {seen}.", "Near the water they found {seen}.", "They had never been so far from home.")
    s.say("Then the way was blocked by a fallen tree.", "Then they came to a river without a bridge.",
          "Then they lost their way.")
    s.say('"What shall we do now?" asked {friend}.', '"I want to go home," said {friend}.', "{hero} thought hard.")
    s.say("They asked an old owl, who showed them the way.",
          "{hero} had an idea. They used a long branch, and it worked.",
          "They waited until they could see the stars, and then they knew where to go.")
    snack(s)
    s.paragraph()
    s.say("At last, they stood on a high hill and saw the sea.", "From there, they could see the whole world.",
          "And behind the last hill, there was a wide blue sea.")
    s.say('"It is so big," said {hero}.', "They did not say a word for a long time.",
          '"One day, we will go there too," said {friend}.')
    ending(s, "friend", "brave")


def honesty(s: Story) -> None:
    s.with_breakable_thing()
    opening(s)
    s.say("{hero_His} {elder} had a beautiful vase.",
          "{hero_His} {elder} had {a_thing} that nobody was allowed to touch.")
    s.words["precious"] = "vase" if "vase" in s.paragraphs[-1][-1] else s.words["toy"]
    s.say("One day, {hero} played {game} in the house with {friend}, {friend_a}.",
          "One rainy day, {hero} ran through the house.")
    s.say("Crash! The {precious} fell down and broke.", "Suddenly there was a loud noise. The {precious} was broken.")
    s.paragraph()
    s.say("{hero} was afraid and hid the pieces {spot}.", "Quickly, {hero} put the pieces in a box.")
    s.say('"Where is my {precious}?" asked {hero_his} {elder} in the evening.',
          '"Did you see my {precious}?" asked {hero_his} {elder}.')
    if s.chance(0.6):
        s.say('"I do not know," said {hero}.', '"Maybe the wind took it," said {hero}.')
        s.say("That night, {hero} could not sleep.", "{hero} felt a stone in {hero_his} belly.",
              "The food did not taste good.")
        s.say('"You should tell the truth," said {friend} the next day.',
              "In the morning, {hero} went to {hero_his} {elder}.")
        s.say('"I broke it," said {hero}. "I am so sorry."', "{hero} told {hero_his} {elder} everything.")
    else:
        s.say("{hero} looked at the floor.", "{hero} became red.")
        s.say('"I broke it," {hero_he} said. "It was me."',
              '"I have to tell you something," said {hero}, and told the truth.')
    s.paragraph()
    s.say('"Thank you for telling me," said {hero_his} {elder}.',
          "{hero_His} {elder} was quiet for a moment, and then {elder_he} smiled.")
    s.say('"The truth is worth more than a {precious}."', '"Everyone breaks something sometimes," {elder_he} said.')
    s.maybe(0.6, "Together, they fixed it with glue.", "{hero} felt as light as a feather.")
    ending(s, "truth")


def sharing(s: Story) -> None:
    opening(s)
    s.say("One day, {hero} and {friend}, {friend_a}, found {a_thing} {around}.",
          "One day, {hero} saw {a_thing} {spot}. But {friend}, {friend_a}, saw it too.")
    s.say('"It is mine!" said {hero}.', '"I saw it first!" said {friend}.')
    s.say('"No, it is mine!" said the other.', "They both pulled at it.", "They shouted at each other.")
    s.say("Then they did not talk anymore.", "The {toy} nearly broke.", "The birds stopped singing.")
    s.paragraph()
    if s.chance(0.5):
        s.say("An old owl looked down from a tree.", "{hero_His} {elder} came out of the house.")
        s.say('"Why do you not take turns?"', '"What is more fun, a {toy} or a friend?"')
    else:
        s.say("After a while, {hero} was bored. It was no fun to be alone.",
              "{hero} looked at {friend}. {friend_He} looked very sad.")
        s.say('"You can have it," said {hero}.', '"I am sorry," said {hero}. "Let us share."')
    s.say("They looked at each other and began to laugh.", '"I am sorry too," said {friend}.')
    s.say("On Monday, {hero} had the {toy}, and on Tuesday, {friend} had it.",
          "From then on, the {thing} was for both of them.", "They took turns, and it was twice the fun.")
    snack(s)
    ending(s, "share")


def bedtime(s: Story) -> None:
    opening(s)
    s.say("One night, {hero} could not sleep.", "It was late, but {hero} was wide awake.")
    s.say("{hero_He} heard a strange noise.", "{hero_He} thought about {fear}.", "The moon was too bright.",
          "{hero_He} missed {hero_his} {thing}.")
    s.say('"I cannot sleep," {hero_he} told {hero_his} {elder}.',
          "{hero_He} turned to the left, and {hero_he} turned to the right.")
    s.say('"Count the stars," said {hero_his} {elder}.', '"Then let us have some warm milk," said {hero_his} {elder}.',
          '"Think of something nice," said {hero_his} {elder}.')
    s.paragraph()
    s.say("{hero} looked out of the window.", "{hero} opened the window, just a little.")
    s.say("There sat {friend}, {friend_a}, who could not sleep either.", "Outside was {friend_a}. It was {friend}.")
    s.say('"Are you awake too?" asked {friend}.', '"Look at the moon," said {friend}.',
          '"Tell me a story," said {friend}.')
    s.say("They counted the stars together. One, two, three, four, five.", "So {hero} told a story about {seen}.",
          "They talked about {place} and about tomorrow.")
    s.say("Soon {friend} began to yawn.", "Their eyes became heavy.")
    s.paragraph()
    s.say('"Good night, {hero}," said {friend}.', '"Good night," said {hero}.')
    s.say("Then {hero} fell asleep and dreamed of {place}.",
          "And before {hero_he} could count to ten, {hero_he} was asleep.",
          "The moon smiled, and everyone slept until the morning.")


def soup(s: Story) -> None:
    opening(s)
    s.say("It was winter, and there was not much to eat.", "One cold day, {hero} was hungry.",
          "{hero} wanted to cook for everyone.")
    s.say("{hero_He} had only a pot and some water.", "{hero_He} had nothing but one big pot.")
    s.say('"I am making soup," {hero_he} told {friend}, {friend_a}.',
          "{friend}, {friend_a}, came by and looked into the pot.")
    s.paragraph()
    s.say('"I have a carrot," said {friend}.', '"It needs salt," said {friend}. "I will bring some."',
          '"I can bring some beans," said {friend}.')
    s.say("{hero_His} {elder} brought an onion.", "A goat brought some cabbage.",
          "The neighbors brought what they had.")
    s.say("Each one gave a little, and soon the pot was full.", "They stirred and stirred, and it smelled very good.")
    s.maybe(0.5, '"Is it ready?" asked {friend}. "Not yet," said {hero}.', "Outside, it began to snow.")
    s.paragraph()
    s.say("Then they all sat down and ate.", "At last, the soup was ready.")
    s.say('"This is the best soup in the world," said {friend}.', "There was enough for everyone.",
          "Nobody was hungry anymore.")
    ending(s, "share", "help")


PLOTS = [lost_thing, new_friend, storm, broken_thing, fear, race, birthday, treasure, garden, journey, honesty, sharing,
         bedtime, soup]
